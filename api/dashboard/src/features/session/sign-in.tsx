/** The page of a browser that is not signed in. */

import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState, type ReactNode } from "react";
import { BAD_LINK, SIGNED_IN } from "../../api/query-client";
import { signIn } from "../../api/session";
import { CopyableText } from "../../components/copyable-text";
import { ProblemNotice } from "../../components/problem-notice";
import { useTitle } from "../../hooks/use-title";
import "./session.css";

/** Its children, or the sign-in page after a response with 401. The address stays. */
export function SignedIn({ children }: { children: ReactNode }) {
  const { data } = useQuery({ queryKey: SIGNED_IN, queryFn: () => true, enabled: false, initialData: true });
  return data ? children : <SignInPage />;
}

function SignInPage() {
  useTitle("Sign in");
  const client = useQueryClient();
  const [token, setToken] = useState("");
  const link = client.getQueryData<Error>(BAD_LINK);
  const enter = useMutation({
    mutationFn: () => signIn({ token }),
    onSuccess: () => {
      client.removeQueries({ queryKey: BAD_LINK });
      return client.resetQueries();
    },
  });
  const problem = enter.error ?? link;
  return (
    <main className="page">
      <section className="card sign-in stack">
        <h1><img src="/favicon.svg" alt="" width="24" height="24" /> Sign in to Shardyard</h1>
        {problem && <ProblemNotice problem={problem} />}
        <p>On the control plane's machine, or where its token is set, run:</p>
        <CopyableText text="shardyard open" label="Command" />
        <form className="form" onSubmit={(event) => { event.preventDefault(); enter.mutate(); }}>
          <label className="form-wide">
            <span>Or paste the access token that <code>shardyard token</code> prints</span>
            <input type="password" autoComplete="current-password" required value={token} onChange={(event) => { setToken(event.target.value); }} />
          </label>
          <button className="button primary" disabled={enter.isPending || token.trim() === ""}>Sign in</button>
        </form>
      </section>
    </main>
  );
}
