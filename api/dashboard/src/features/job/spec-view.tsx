/** The spec as it was submitted, as YAML or JSON, ready to be copied. */

import { useId, useState, type KeyboardEvent } from "react";
import { CopyButton } from "../../components/copyable-text";
import { toYaml } from "../../model/yaml";
import "./spec-view.css";

const FORMS = ["YAML", "JSON"] as const;
type Form = (typeof FORMS)[number];

const write: Record<Form, (spec: unknown) => string> = {
  YAML: toYaml,
  JSON: (spec) => `${JSON.stringify(spec, null, 2)}\n`,
};

export function SpecView({ spec }: { spec: unknown }) {
  const [form, setForm] = useState<Form>("YAML");
  const panel = useId();
  const text = write[form](spec);
  return (
    <section className="spec-view card" aria-label="Spec">
      <div className="card-head">
        <h2>Spec</h2>
        <Tabs form={form} panel={panel} onForm={setForm} />
        <CopyButton text={text} />
      </div>
      <pre id={panel} role="tabpanel" aria-label={form} tabIndex={0}>{text}</pre>
    </section>
  );
}

function Tabs({ form, panel, onForm }: { form: Form; panel: string; onForm: (form: Form) => void }) {
  const move = (event: KeyboardEvent<HTMLDivElement>) => {
    if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
    const other = form === "YAML" ? "JSON" : "YAML";
    onForm(other);
    event.currentTarget.querySelector<HTMLElement>(`[data-form="${other}"]`)?.focus();
  };
  return (
    <div className="tabs" role="tablist" tabIndex={-1} aria-label="Form of the spec" onKeyDown={move}>
      {FORMS.map((each) => (
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
