/** Profiles of a job's ranks: requests one, and lists the newest with their files. */

import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { newKey } from "../../api/idempotency-key";
import type { Job } from "../../api/jobs";
import { listProfiles, type Profile, type ProfileKind, profileRank } from "../../api/profiles";
import { untilRead } from "../../api/retrying";
import { ProblemNotice } from "../../components/problem-notice";
import { useOnceEnded } from "../../hooks/use-once-ended";
import { moment } from "../../model/format";
import { isFinal } from "../../model/jobs";
import "./ranks.css";

const SHOWN = 10;
const EVERY_MS = 1000;
const KINDS: Readonly<Record<ProfileKind, string>> = { stacks: "Stacks", cpu: "CPU time, 10 s", operators: "Operators, 10 s", memory: "GPU memory, 10 s" };

/** Memory is recorded on GPUs. */
const kindsOf = (job: Job) => (Object.keys(KINDS) as ProfileKind[]).filter((kind) => kind !== "memory" || job.device === "cuda");

export function JobProfiles({ job }: { job: Job }) {
  const client = useQueryClient();
  const [rank, setRank] = useState(0);
  const [kind, setKind] = useState<ProfileKind>("stacks");
  const last = (job.worldSize ?? 1) - 1;
  const queryKey = ["profiles", job.id];
  const query = useQuery({
    queryKey,
    queryFn: ({ signal }) => listProfiles(job.id, SHOWN, signal),
    refetchInterval: (query) => (query.state.data?.some((one) => one.state === "open") ? EVERY_MS : untilRead(query)),
  });
  useOnceEnded(isFinal(job.state), query.refetch);
  const start = useMutation({
    mutationFn: () => profileRank(job.id, rank, kind, newKey("profile")),
    onSettled: () => client.invalidateQueries({ queryKey }),
  });
  const found = query.data ?? [];
  const problem = start.error ?? query.error;
  return (
    <section className="card plain-table job-profiles" aria-labelledby="profiles-title" tabIndex={0}>
      <div className="card-head">
        <h2 id="profiles-title">Profiles</h2>
        <label><span className="quiet">Rank</span> <input type="number" min={0} max={last} value={rank} onChange={(event) => { setRank(Number(event.target.value)); }} /></label>
        <label>
          <span className="unseen">Kind</span>
          <select value={kind} onChange={(event) => { setKind(event.target.value as ProfileKind); }}>
            {kindsOf(job).map((name) => <option key={name} value={name}>{KINDS[name]}</option>)}
          </select>
        </label>
        <button className="button small" disabled={job.state !== "running" || start.isPending || rank > last} onClick={() => { start.mutate(); }}>Profile</button>
      </div>
      {problem && <ProblemNotice problem={problem} />}
      {query.data && found.length === 0 && <p className="pad quiet">Stacks say where a rank’s Python threads are now. CPU time says which functions they run, as a file for speedscope.app; operators are those of torch, for ui.perfetto.dev.</p>}
      {found.length > 0 && <ProfileTable profiles={found} />}
    </section>
  );
}

function ProfileTable({ profiles }: { profiles: readonly Profile[] }) {
  return (
    <table>
      <thead><tr><th scope="col">Requested</th><th scope="col">Rank</th><th scope="col">Kind</th><th scope="col">Result</th></tr></thead>
      <tbody>
        {profiles.map((one) => (
          <tr key={one.id}>
            <td>{moment(one.requestedAt)}</td>
            <td>{one.rank}</td>
            <td>{one.kind}</td>
            <td><Result profile={one} /></td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function Result({ profile: { state, message, address, kind, rank, requestedAt } }: { profile: Profile }) {
  if (state === "open") return <span role="status">Being taken…</span>;
  if (address === null) return <span className="bad">{message}</span>;
  return <><a className="button small" href={address} download aria-label={`Download the ${kind} of rank ${rank}, ${moment(requestedAt)}`}>Download</a> <span className="quiet">{message}</span></>;
}
