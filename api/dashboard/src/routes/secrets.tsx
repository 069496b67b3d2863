/** `/secrets`: the names of stored secrets, and a form that stores one. */

import { useQuery } from "@tanstack/react-query";
import { listSecrets } from "../api/secrets";
import { Empty } from "../components/empty";
import { ProblemNotice } from "../components/problem-notice";
import { SecretTable } from "../features/secrets/secret-table";
import { SetSecret } from "../features/secrets/set-secret";
import { useNow } from "../hooks/use-now";
import { useTitle } from "../hooks/use-title";
import "../features/secrets/secrets.css";

export function SecretsPage() {
  useTitle("Secrets");
  const now = useNow();
  const secrets = useQuery({ queryKey: ["secrets"], queryFn: ({ signal }) => listSecrets(signal) });
  return (
    <main className="page stack">
      <div className="page-head">
        <h1>Secrets</h1>
        <p className="quiet">Tokens and keys for the ranks of jobs that name them in <code>secrets</code></p>
      </div>
      {secrets.error && <ProblemNotice problem={secrets.error} stale={secrets.data !== undefined} />}
      {secrets.isLoading && <p className="quiet">Loading the names…</p>}
      {secrets.data?.length === 0 && <Empty title="No secrets yet"><p>Store one here, or with <code>shardyard secrets --set NAME</code>.</p></Empty>}
      {secrets.data && secrets.data.length > 0 && <SecretTable secrets={secrets.data} now={now} />}
      <SetSecret secrets={secrets.data ?? []} />
    </main>
  );
}
