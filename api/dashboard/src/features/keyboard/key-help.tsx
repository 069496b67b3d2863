/** The keys of all pages. Keys that are single letters can be turned off, for those who speak to their machine. */

import { Confirm } from "../../components/confirm";
import { MEANINGS } from "../../model/shortcuts";

interface KeyHelpProps {
  letters: boolean;
  onLetters: (on: boolean) => void;
  onClose: () => void;
}

export function KeyHelp({ letters, onLetters, onClose }: KeyHelpProps) {
  return (
    <Confirm title="Keys" no="Close" onNo={onClose}>
      <dl className="key-help">
        {MEANINGS.map(([keys, meaning]) => (
          <div key={keys}>
            <dt>{keys.split(" ").map((key) => <kbd key={key}>{key}</kbd>)}</dt>
            <dd>{meaning}</dd>
          </div>
        ))}
      </dl>
      <p className="quiet">They do nothing while you type.</p>
      <label><input type="checkbox" checked={letters} onChange={(event) => { onLetters(event.target.checked); }} /> Keys that are single letters</label>
    </Confirm>
  );
}
