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
  const [replacement, setReplacement] = useState<Template | null>(null);
  const shown = templates.find((one) => one.text === text);
  const choose = (name: string) => {
    const template = templates.find((one) => one.name === name) ?? null;
    if (shown === undefined && text.trim() !== "") setReplacement(template);
    else if (template) onText(template.text);
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
      {replacement && (
        <Confirm
          title={`Replace the spec with ${replacement.name}?`}
          yes="Replace the spec"
          no="Keep my text"
          busy={false}
          onYes={() => { onText(replacement.text); setReplacement(null); }}
          onNo={() => { setReplacement(null); }}
        >
          <p>{replacement.about}</p>
          <p>Your text will be lost.</p>
        </Confirm>
      )}
    </>
  );
}
