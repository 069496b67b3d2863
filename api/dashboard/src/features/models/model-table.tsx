/** Models, one per row: the newest version and the aliases. */

import { Link } from "wouter";
import type { Model } from "../../api/models";
import { TimeAgo } from "../../components/time-ago";
import { modelAddress } from "../../model/addresses";

export function ModelTable({ models, now }: { models: readonly Model[]; now: Date }) {
  return (
    <section className="plain-table card" aria-label="Models" tabIndex={0}>
      <table>
        <thead>
          <tr>
            <th scope="col">Name</th>
            <th scope="col" className="right">Latest</th>
            <th scope="col">Aliases</th>
            <th scope="col">Created by</th>
            <th scope="col" className="right">Created</th>
          </tr>
        </thead>
        <tbody>
          {models.map(({ name, latest, aliases, actor, createdAt }) => (
            <tr key={name}>
              <th scope="row"><Link href={modelAddress(name)}>{name}</Link></th>
              <td className="right number">{latest ?? "–"}</td>
              <td>{aliases.length === 0 ? "–" : aliases.map((alias) => <code key={alias.name} className="label">{alias.name} → {alias.version}</code>)}</td>
              <td>{actor}</td>
              <td className="right quiet"><TimeAgo at={createdAt} now={now} /></td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}
