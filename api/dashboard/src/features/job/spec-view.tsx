/** The spec as it was submitted, and resolved as YAML or JSON, ready to be copied. */

import { useId, useState, type KeyboardEvent } from "react";
import type { SubmittedSpec } from "../../api/submitted-spec";
import { CopyButton } from "../../components/copyable-text";
import { toYaml } from "../../model/yaml";
import "./spec-view.css";

type Form = "Submitted" | "YAML" | "JSON";

const textIn = (form: Form, spec: unknown, submitted: SubmittedSpec | null) =>
  form === "Submitted" && submitted ? submitted.text : form === "JSON" ? `${JSON.stringify(spec, null, 2)}\n` : toYaml(spec);

/** `submitted`: null if its text was not kept. */
export function SpecView({ spec, submitted = null }: { spec: unknown; submitted?: SubmittedSpec | null }) {
  const forms: readonly Form[] = submitted ? ["Submitted", "YAML", "JSON"] : ["YAML", "JSON"];
  const [form, setForm] = useState<Form>(submitted ? "Submitted" : "YAML");
  const panel = useId();
  const text = textIn(form, spec, submitted);
  return (
    <section className="spec-view card" aria-label="Spec">
      <div className="card-head">
        <h2>Spec</h2>
        <Tabs forms={forms} form={form} panel={panel} onForm={setForm} />
        <CopyButton text={text} />
      </div>
      {submitted && <p className="quiet pad">{form === "Submitted" ? `As it was submitted.${submitted.layoutChanged ? " The layout was changed since." : ""}` : "Resolved: with every default."}</p>}
      <pre id={panel} role="tabpanel" aria-label={form} tabIndex={0}>{text}</pre>
    </section>
  );
}

interface TabsProps {
  forms: readonly Form[];
  form: Form;
  panel: string;
  onForm: (form: Form) => void;
}

function Tabs({ forms, form, panel, onForm }: TabsProps) {
  const move = (event: KeyboardEvent<HTMLDivElement>) => {
    if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
    const by = event.key === "ArrowRight" ? 1 : -1;
    const other = forms[(forms.indexOf(form) + by + forms.length) % forms.length] ?? form;
    onForm(other);
    event.currentTarget.querySelector<HTMLElement>(`[data-form="${other}"]`)?.focus();
  };
  return (
    <div className="tabs" role="tablist" tabIndex={-1} aria-label="Form of the spec" onKeyDown={move}>
      {forms.map((each) => (
        <button
          key={each}
          data-form={each}
          role="tab"
          aria-selected={each === form}
          aria-controls={panel}
          tabIndex={each === form ? 0 : -1}
          onClick={() => { onForm(each); }}
        >
          {each}
        </button>
      ))}
    </div>
  );
}
