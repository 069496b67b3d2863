/** The stored secrets, each with a button that removes it. */

import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { removeSecret, type Secret } from "../../api/secrets";
import { Confirm } from "../../components/confirm";
import { ProblemNotice } from "../../components/problem-notice";
import { TimeAgo } from "../../components/time-ago";

export function SecretTable({ secrets, now }: { secrets: readonly Secret[]; now: Date }) {
  const [chosen, choose] = useState<string | null>(null);
  return (
    <section className="plain-table card" aria-label="Stored secrets" tabIndex={0}>
      <table>
        <thead>
          <tr><th scope="col">Name</th><th scope="col">Set by</th><th scope="col">Set</th><th scope="col"><span className="unseen">Actions</span></th></tr>
        </thead>
        <tbody>
          {secrets.map(({ name, actor, updatedAt }) => (
            <tr key={name}>
              <th scope="row"><code>{name}</code></th>
              <td>{actor}</td>
              <td><TimeAgo at={updatedAt} now={now} /></td>
              <td><button className="button small" onClick={() => { choose(name); }}>Remove… <span className="unseen">{name}</span></button></td>
            </tr>
          ))}
        </tbody>
      </table>
      {chosen !== null && <Remove name={chosen} onDone={() => { choose(null); }} />}
    </section>
  );
}

function Remove({ name, onDone }: { name: string; onDone: () => void }) {
  const client = useQueryClient();
  const remove = useMutation({
    mutationFn: () => removeSecret(name),
    onSuccess: (left) => {
      client.setQueryData(["secrets"], left);
      onDone();
    },
  });
  return (
    <Confirm title={`Remove ${name}?`} yes="Remove" no="Keep it" busy={remove.isPending} onYes={() => { remove.mutate(); }} onNo={onDone}>
      <p>Ranks that have it keep it. A job that names it fails when it starts.</p>
      {remove.error && <ProblemNotice problem={remove.error} />}
    </Confirm>
  );
}
