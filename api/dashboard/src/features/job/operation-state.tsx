/** The state of an operation on a checkpoint, and its result. */

import type { Operation } from "../../api/operations";
import { bytes, integer } from "../../model/format";
import { isOpen } from "../../model/operations";

const UNDERWAY: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  verify: { pending: "Verification is queued…", running: "Verifying…" },
  export: { pending: "Export is queued…", running: "Exporting…" },
  pin: { pending: "Pin is queued…", running: "Pinning…" },
  unpin: { pending: "Unpin is queued…", running: "Unpinning…" },
};

export function OperationState({ operation }: { operation: Operation }) {
  const { kind, state, error, verified, exported } = operation;
  if (isOpen(operation)) return <div className="operation quiet" role="status">{UNDERWAY[kind]?.[state]}</div>;
  if (error) return <div className="operation bad" title={error.code}>Could not {kind}: {error.message} {error.remedy}</div>;
  if (verified) return <Found verified={verified} />;
  if (exported) return <Written exported={exported} />;
  return null;
}

function Written({ exported }: { exported: NonNullable<Operation["exported"]> }) {
  const { dtype, path, tokenizer_missing } = exported;
  return (
    <>
      <div className="operation">Exported as {dtype}, {bytes(exported.bytes)}: <code>{path}</code></div>
      {tokenizer_missing && <div className="operation bad">{tokenizer_missing}</div>}
    </>
  );
}

function Found({ verified }: { verified: NonNullable<Operation["verified"]> }) {
  if (verified.verdict === "corrupt") return <div className="operation bad">Corrupt: {named(verified)}</div>;
  if (verified.verdict === "deleted") return <div className="operation quiet">Deleted</div>;
  return <div className="operation">Valid: {integer(verified.files)} {verified.files === 1 ? "file matches its checksum" : "files match their checksums"}</div>;
}

function named({ corrupt, corrupt_files }: NonNullable<Operation["verified"]>): string {
  const more = corrupt_files - corrupt.length;
  return corrupt.join(", ") + (more > 0 ? ` and ${integer(more)} more` : "");
}
