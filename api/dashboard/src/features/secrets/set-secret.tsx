/** The form that stores a secret, or replaces one. */

import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { setSecret, type Secret } from "../../api/secrets";
import { ProblemNotice } from "../../components/problem-notice";

export function SetSecret({ secrets }: { secrets: readonly Secret[] }) {
  const client = useQueryClient();
  const [name, setName] = useState("");
  const [value, setValue] = useState("");
  const store = useMutation({
    mutationFn: () => setSecret(name, value),
    onSuccess: () => {
      setName("");
      setValue("");
      return client.invalidateQueries({ queryKey: ["secrets"] });
    },
  });
  const replaces = secrets.some((secret) => secret.name === name);
  return (
    <section className="card stack set-secret" aria-label="Store a secret">
      <h2>Store a secret</h2>
      <form className="form" autoComplete="off" onSubmit={(event) => { event.preventDefault(); store.mutate(); }}>
        <label className="form-wide">
          Name
          <input required pattern="[A-Za-z_][A-Za-z0-9_]*" maxLength={255} placeholder="HF_TOKEN" spellCheck={false} title="Letters, digits and underscores" value={name} onChange={(event) => { setName(event.target.value); }} />
        </label>
        <label className="form-wide">
          Text (8 characters or more; never shown again)
          <textarea required minLength={8} rows={3} spellCheck={false} value={value} onChange={(event) => { setValue(event.target.value); }} />
        </label>
        <button className="button primary" disabled={store.isPending || name === "" || value.length < 8}>{replaces ? `Replace ${name}` : "Store"}</button>
      </form>
      {store.error && <ProblemNotice problem={store.error} />}
      {store.data && <p role="status">{store.data.name} is stored. Jobs get it with <code>secrets: [{store.data.name}]</code> in their specs.</p>}
    </section>
  );
}
