/** The aliases of a model, each with a button that removes it. */

import { useMutation, useQueryClient } from "@tanstack/react-query";
import { type Alias, type Model, removeAlias } from "../../api/models";
import { ProblemNotice } from "../../components/problem-notice";
import { TimeAgo } from "../../components/time-ago";

export function AliasList({ model, now }: { model: Model; now: Date }) {
  const client = useQueryClient();
  const remove = useMutation({
    mutationFn: ({ name, version }: Alias) => removeAlias(model.name, name, version),
    onSettled: () => client.invalidateQueries({ queryKey: ["model", model.name] }),
  });
  return (
    <section className="card" aria-labelledby="aliases-title">
      <div className="card-head"><h2 id="aliases-title">Aliases</h2></div>
      {remove.error && <ProblemNotice problem={remove.error} />}
      <ul className="pad">
        {model.latest !== null && <li><code>latest</code> is version {model.latest}</li>}
        {model.aliases.map((alias) => (
          <li key={alias.name}>
            <code>{alias.name}</code> is version {alias.version} <span className="quiet">by {alias.actor}, <TimeAgo at={alias.setAt} now={now} /></span>{" "}
            <button className="button small" disabled={remove.isPending} onClick={() => { remove.mutate(alias); }}>Remove <span className="unseen">{alias.name}</span></button>
          </li>
        ))}
      </ul>
    </section>
  );
}
