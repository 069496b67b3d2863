/** Files, images and tables that a job's program logged. */

import { fill, get, type Schema, toProblem, unreachable } from "./http";

export interface Artifact {
  name: string;
  step: number | null;
  type: "file" | "image" | "table";
  rank: number;
  bytes: number;
  /** Of its content, which is another one once the name is logged again at this step. */
  sha256: string;
  /** A browser shows it as an image. */
  shown: boolean;
  /** Where its content is. */
  address: string;
}

export interface ArtifactPage {
  artifacts: Artifact[];
  next: string | null;
}

const SHOWN: readonly string[] = ["image/png", "image/jpeg", "image/webp"];

const toArtifact = (job: string, wire: Schema<"LoggedArtifact">): Artifact => ({
  name: wire.name,
  step: wire.step,
  type: wire.type,
  rank: wire.rank,
  bytes: wire.bytes,
  sha256: wire.sha256,
  shown: SHOWN.includes(wire.media_type),
  address: addressOf(job, wire),
});

/** Separators of the name stay: it is a path. */
function addressOf(job: string, { name, step }: Schema<"LoggedArtifact">): string {
  const path = name.split("/").map(encodeURIComponent).join("/");
  return fill("/v1/jobs/{job}/artifacts/", { path: { job } }) + path + (step === null ? "" : `?step=${step}`);
}

/** Where only this content is: a browser does not load an image's address again while that stays the same. */
export const addressOfContent = ({ address, sha256 }: Artifact) => `${address}${address.includes("?") ? "&" : "?"}sha256=${sha256}`;

/** Raises `Problem`. */
export async function listArtifacts(job: string, after: string | null, limit: number, signal?: AbortSignal): Promise<ArtifactPage> {
  const page = await get("/v1/jobs/{job}/artifacts", { path: { job }, query: { after, limit }, signal });
  return { artifacts: page.items.map((one) => toArtifact(job, one)), next: page.next };
}

/** The first bytes of a file as text. Raises `Problem`. */
export async function readStart(address: string, bytes: number, signal: AbortSignal): Promise<string> {
  const failed = (error: unknown): never => {
    throw signal.aborted ? error : unreachable();
  };
  const response = await fetch(address, { headers: { Range: `bytes=0-${bytes - 1}` }, signal }).catch(failed);
  if (!response.ok) throw await toProblem(response);
  return await response.text().catch(failed);
}
