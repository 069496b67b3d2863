/** The bar on every page: links to the pages, the cluster's capacity, commands, the theme, and the button that signs out. */

import { useMutation, useQueryClient } from "@tanstack/react-query";
import { Link, useLocation } from "wouter";
import { SIGNED_IN } from "../api/query-client";
import { signOut } from "../api/session";
import { Keyboard } from "../features/keyboard/keyboard";
import { useNodes } from "../hooks/use-nodes";
import { useServer } from "../hooks/use-server";
import { THEMES, type Theme, useTheme } from "../hooks/use-theme";
import { capacity } from "../model/nodes";
import "./top-bar.css";

const PAGES: readonly { address: string; name: string; also?: string }[] = [
  { address: "/", name: "Jobs", also: "/jobs/" },
  { address: "/new", name: "New job" },
  { address: "/cluster", name: "Cluster", also: "/cluster/" },
  { address: "/compare", name: "Compare" },
  { address: "/sweeps", name: "Sweeps", also: "/sweeps/" },
  { address: "/models", name: "Models", also: "/models/" },
  { address: "/secrets", name: "Secrets" },
];

export function TopBar() {
  const { data } = useNodes();
  const [location] = useLocation();
  return (
    <header className="top-bar">
      <Link href="/" className="wordmark">
        <img src="/favicon.svg" alt="" width="20" height="20" /> Shardyard
      </Link>
      <nav aria-label="Pages" className="top-bar-pages">
        {PAGES.map(({ address, name, also }) => (
          <Link
            key={address}
            href={address}
            aria-current={location === address ? "page" : also !== undefined && location.startsWith(also) ? "true" : undefined}
          >
            {name}
          </Link>
        ))}
      </nav>
      {data?.some(({ alive }) => alive) && <span className="top-bar-has quiet number">{capacity(data)}</span>}
      <Keyboard />
      <ThemeChoice />
      <SignOut />
    </header>
  );
}

function ThemeChoice() {
  const [theme, choose] = useTheme();
  return (
    <label>
      <span className="unseen">Theme</span>
      <select className="top-bar-theme" value={theme} onChange={(event) => { choose(event.target.value as Theme); }}>
        {THEMES.map((one) => <option key={one} value={one}>{THEME_NAMES[one]}</option>)}
      </select>
    </label>
  );
}

const THEME_NAMES: Readonly<Record<Theme, string>> = { system: "System theme", light: "Light", dark: "Dark" };

/** Shown where the control plane needs a sign-in. */
function SignOut() {
  const client = useQueryClient();
  const server = useServer();
  const leave = useMutation({ mutationFn: signOut, onSuccess: () => { client.setQueryData(SIGNED_IN, false); } });
  if (!server?.authentication) return null;
  return <button className="button small" disabled={leave.isPending} onClick={() => { leave.mutate(); }}>Sign out</button>;
}
