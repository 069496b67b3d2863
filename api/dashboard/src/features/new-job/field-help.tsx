/** Help for the field under the cursor: its meaning, its values and the keys below it, from the schema. */

import type { Help } from "../../model/schema";
import "./new-job.css";

export function FieldHelp({ help, path }: { help: Help | null; path: readonly string[] }) {
  const field = help?.field ?? path.join(".");
  return (
    <section className="field-help card" aria-label="Help for the field under the cursor">
      <div className="card-head"><h2>{field === "" ? "The spec" : <code>{field}</code>}</h2></div>
      <div className="field-help-body">
        {help === null ? <p>The spec has no field of this name.</p> : <Known help={help} />}
      </div>
    </section>
  );
}

function Known({ help }: { help: Help }) {
  return (
    <>
      {help.about !== "" && <p>{help.about}</p>}
      {help.keys.length === 0 && (
        <p className="quiet">
          {help.takes}
          {help.default !== null && <>{help.takes !== "" && "; "}default <code>{help.default}</code></>}
        </p>
      )}
      {help.keys.length > 0 && (
        <dl tabIndex={0} aria-label="Keys">
          {help.keys.map(({ name, about, required }) => (
            <div key={name}>
              <dt><code>{name}</code>{required && <span className="quiet"> required</span>}</dt>
              <dd>{about}</dd>
            </div>
          ))}
        </dl>
      )}
    </>
  );
}
