/** A dialog that finds pages, jobs, the tabs and actions of the open job, and themes, and goes there. */

import { useQuery } from "@tanstack/react-query";
import { type KeyboardEvent, useEffect, useId, useRef, useState } from "react";
import { useLocation } from "wouter";
import { type Job, listJobs, NO_FILTER } from "../../api/jobs";
import { useDebounced } from "../../hooks/use-debounced";
import { useModal } from "../../hooks/use-modal";
import { THEMES, useTheme } from "../../hooks/use-theme";
import { jobAddress } from "../../model/addresses";
import { type Command, matching } from "../../model/commands";

/** Jobs that are offered, at most. */
const OFFERED = 8;

const PAGES = [["/", "Jobs"], ["/new", "New job"], ["/cluster", "Cluster"], ["/compare", "Compare"], ["/sweeps", "Sweeps"], ["/models", "Models"], ["/secrets", "Secrets"]] as const;

interface CommandPaletteProps {
  onHelp: () => void;
  onClose: () => void;
}

export function CommandPalette({ onHelp, onClose }: CommandPaletteProps) {
  const dialog = useModal();
  const list = useId();
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const commands = useCommands(text, onHelp);
  const chosen = Math.min(at, commands.length - 1);

  const run = (command: Command | undefined) => {
    if (command === undefined) return;
    // First, so that the page has its focus back, which a dialog that opens now takes over.
    dialog.current?.close();
    onClose();
    command.run();
  };
  const press = (event: KeyboardEvent) => {
    const move = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (move !== undefined) setAt((chosen + move + commands.length) % Math.max(commands.length, 1));
    else if (event.key === "Enter") run(commands[chosen]);
    else return;
    event.preventDefault();
  };
  return (
    <dialog ref={dialog} className="palette" aria-label="Commands" onCancel={onClose}>
      <input
        type="search"
        role="combobox"
        aria-label="Find a page, a job or an action"
        aria-expanded="true"
        aria-controls={list}
        aria-activedescendant={commands[chosen] && `${list}-${chosen}`}
        placeholder="Find a page, a job or an action"
        autoComplete="off"
        value={text}
        onChange={(event) => { setText(event.target.value); setAt(0); }}
        onKeyDown={press}
      />
      <ul id={list} role="listbox" aria-label="Commands">
        {commands.map((command, place) => <Option key={command.id} id={`${list}-${place}`} command={command} chosen={place === chosen} onRun={() => { run(command); }} />)}
      </ul>
      <p className="quiet" role="status">{commands.length === 0 ? "Nothing is found." : ""}</p>
    </dialog>
  );
}

function Option({ id, command, chosen, onRun }: { id: string; command: Command; chosen: boolean; onRun: () => void }) {
  const row = useRef<HTMLLIElement>(null);
  useEffect(() => {
    if (chosen) row.current?.scrollIntoView({ block: "nearest" });
  }, [chosen]);
  return (
    <li ref={row} id={id} role="option" aria-selected={chosen} onClick={onRun}>
      <span>{command.label}</span> <span className="palette-kind">{command.kind}</span>
    </li>
  );
}

function useCommands(text: string, onHelp: () => void): readonly Command[] {
  const [, navigate] = useLocation();
  const [, choose] = useTheme();
  const [ofPage] = useState(commandsOfPage);
  const settled = useDebounced(text.trim());
  const { data } = useQuery({
    queryKey: ["jobs", "palette", settled],
    queryFn: ({ signal }) => listJobs({ ...NO_FILTER, text: settled }, null, signal, OFFERED),
    placeholderData: (before) => before,
  });
  const go = (address: string) => () => { navigate(address); };
  // The answer may be that of a text before: Enter must not open one of its jobs.
  const wanted = text.trim().toLowerCase();
  const fitting = (data?.jobs ?? []).filter(({ id, name }) => name.toLowerCase().includes(wanted) || id.includes(wanted));
  const jobs = fitting.map((job): Command => ({ id: job.id, label: labelOf(job, text), kind: `Job, ${job.state}`, run: go(jobAddress(job.id)) }));
  const fixed: Command[] = [
    ...PAGES.map(([address, name]) => ({ id: address, label: name, kind: "Page", run: go(address) })),
    ...THEMES.map((theme) => ({ id: `theme-${theme}`, label: `Use the ${theme} theme`, kind: "Theme", run: () => { choose(theme); } })),
    { id: "keys", label: "Show the keys", kind: "Help", run: onHelp },
  ];
  return [...matching([...ofPage, ...fixed], text), ...jobs];
}

/** The id too, where it is what was typed. */
const labelOf = ({ id, name }: Job, text: string) => (text !== "" && id.includes(text.trim()) ? `${name} ${id}` : name);

/** The tabs of the open page, and the buttons of its head: to run one is to press it, with whatever it asks for. */
function commandsOfPage(): Command[] {
  const buttons = [...document.querySelectorAll<HTMLElement>(".tab-links a, .job-actions > :is(a, button):not(:disabled)")];
  return buttons.map((button, at) => {
    const isTab = button.closest(".tab-links") !== null;
    return { id: `page-${at}`, label: button.textContent, kind: isTab ? "Tab of this page" : "Action on this job", run: () => { button.focus(); button.click(); } };
  });
}
