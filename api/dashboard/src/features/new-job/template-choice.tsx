/** The choice of a template for a spec. A text that the user wrote is replaced only after a confirmation. */

import { useState } from "react";
import type { Template } from "../../api/templates";
import { Confirm } from "../../components/confirm";
import "./new-job.css";

interface TemplateChoiceProps {
  templates: readonly Template[];
  text: string;
  onText: (text: string) => void;
}

export function TemplateChoice({ templates, text, onText }: TemplateChoiceProps) {
  const [asked, ask] = useState<Template | null>(null);
  const shown = templates.find((one) => one.text === text);
  const choose = (name: string) => {
    const wanted = templates.find((one) => one.name === name) ?? null;
    if (shown === undefined && text.trim() !== "") ask(wanted);
    else if (wanted) onText(wanted.text);
  };
  return (
    <>
      <label className="templates">
        <span className="quiet">Template</span>
        <select value={shown?.name ?? ""} title={shown?.about} onChange={(event) => { choose(event.target.value); }}>
          {shown === undefined && <option value="">custom</option>}
          {templates.map(({ name }) => <option key={name} value={name}>{name}</option>)}
        </select>
      </label>
      {asked && (
        <Confirm
          title={`Replace the spec with ${asked.name}?`}
          yes="Replace the spec"
          no="Keep my text"
          busy={false}
          onYes={() => { onText(asked.text); ask(null); }}
          onNo={() => { ask(null); }}
        >
          <p>{asked.about}</p>
          <p>Your text will be lost.</p>
        </Confirm>
      )}
    </>
  );
}
