/** The first rows of a logged table. Only its beginning is loaded, however large it is. */

import { useQuery } from "@tanstack/react-query";
import { type Artifact, readStart } from "../../api/artifacts";
import { ProblemNotice } from "../../components/problem-notice";
import { bytes, integer } from "../../model/format";
import { csvRows } from "../../model/csv-rows";

const ROWS = 100;
const MOST_BYTES = 256 * 1024;

export function TableStart({ table, onClose }: { table: Artifact; onClose: () => void }) {
  const query = useQuery({ queryKey: ["table", table.address, table.sha256], queryFn: ({ signal }) => (table.bytes > 0 ? readStart(table.address, MOST_BYTES, signal) : "") });
  const cut = table.bytes > MOST_BYTES;
  const [head, ...read] = csvRows(query.data ?? "", ROWS + 2, cut);
  const rows = read.slice(0, ROWS);
  const title = table.step === null ? table.name : `${table.name}, step ${integer(table.step)}`;
  return (
    <section className="plain-table table-start card" aria-label={title} tabIndex={0}>
      <div className="card-head"><h2>{title}</h2><button className="button" onClick={onClose}>Close</button></div>
      {query.error && <ProblemNotice problem={query.error} />}
      {query.isLoading && <p className="pad quiet">Loading…</p>}
      {query.isSuccess && !head && <p className="pad quiet">{cut ? `The first row has more than ${bytes(MOST_BYTES)}. Download the table.` : "The table is empty."}</p>}
      {head && (
        <table>
          <thead><tr>{head.map((name, at) => <th key={at} scope="col">{name}</th>)}</tr></thead>
          <tbody>{rows.map((row, number) => <tr key={number}>{row.map((value, at) => <td key={at}>{value}</td>)}</tr>)}</tbody>
        </table>
      )}
      {head && <p className="pad quiet">{shown(rows.length, cut || read.length > ROWS)}</p>}
    </section>
  );
}

function shown(rows: number, first: boolean) {
  if (first) return rows === 1 ? "The first row" : `The first ${rows} rows`;
  return rows === 1 ? "1 row" : `${rows} rows`;
}
