/** The spec of a new job: its editor, its preview or errors, help for the field under the cursor, and the button that submits it. */

import { useMutation, useQuery } from "@tanstack/react-query";
import { useCallback, useMemo, useState, type ReactNode } from "react";
import { Link, useLocation } from "wouter";
import { type FieldError, isRefused, toFieldErrors } from "../../api/http";
import { previewJob, submitJob } from "../../api/jobs";
import { getSchema, type SchemaNode } from "../../api/schema";
import { submitSweep } from "../../api/sweeps";
import type { Template } from "../../api/templates";
import { ProblemNotice } from "../../components/problem-notice";
import { useDebounced } from "../../hooks/use-debounced";
import { jobAddress, sweepAddress } from "../../model/addresses";
import { help } from "../../model/schema";
import { isSweep, keyOf, kindOf, pathAt } from "../../model/spec-keys";
import { FieldHelp } from "./field-help";
import { Findings } from "./findings";
import { PreviewFacts } from "./preview-facts";
import { type Mark, SpecEditor } from "./spec-editor";
import { TemplateChoice } from "./template-choice";
import { type Draft, useDraft } from "./use-draft";
import "./new-job.css";

interface SpecFormProps {
  templates: readonly Template[];
  /** The text to begin with. */
  first: string;
  /** What it was made out of. */
  of?: string;
  note?: ReactNode;
}

export function SpecForm({ templates, first, of, note }: SpecFormProps) {
  const draft = useDraft(first, of);
  const [cursor, setCursor] = useState(0);
  const [goTo, setGoTo] = useState<{ at: number } | null>(null);
  const { preview, problem, failure } = usePreview(draft.text);
  const [submit, send] = useSubmit(draft);
  // Of this very text: what was refused may be right since.
  const refused = submit.variables === draft.text ? submit.error : null;
  const found = problem ?? (isRefused(refused) ? refused : null);
  const lineOf = useCallback((field: string) => keyOf(draft.text, field)?.line ?? null, [draft.text]);
  const onGo = (field: string) => { setGoTo({ at: keyOf(draft.text, field)?.at ?? 0 }); };
  const warnings = useMemo(() => (found ? [] : toFieldErrors(preview?.warnings ?? [])), [found, preview]);
  const marks = useMemo(() => [...marksOf(draft.text, found?.errors ?? [], false), ...marksOf(draft.text, warnings, true)], [draft.text, found, warnings]);
  const schema = useSchema(draft.text);

  return (
    <>
      <div className="page-head">
        <h1>New job</h1>
        <button className="button primary" disabled={submit.isPending} onClick={send}>
          {submit.isPending ? "Submitting…" : "Submit"}
        </button>
      </div>
      {note}
      {submit.data !== undefined && submit.variables !== draft.text && (
        <p className="origin quiet" role="status">The text before your changes was submitted: <Link href={submit.data}>{submit.data.split("/").at(-1)}</Link></p>
      )}
      {refused && refused !== found && <ProblemNotice problem={refused} />}
      <div className="columns">
        <section className="card" aria-label="Spec">
          <div className="card-head">
            <h2>Spec</h2>
            <TemplateChoice templates={templates} text={draft.text} onText={draft.change} />
          </div>
          <SpecEditor text={draft.text} onText={draft.change} onCursor={setCursor} marks={marks} goTo={goTo} schema={schema} />
        </section>
        <div className="stack">
          <div id="spec-findings" aria-live="polite">
            {found && <Findings title={found.title} errors={found.findings} lineOf={lineOf} onGo={onGo} />}
            {!found && isSweep(draft.text) && <p className="card pad">This is a sweep. It has no preview; Submit checks it, and stores nothing if it is refused.</p>}
            {!found && preview && <PreviewFacts preview={preview} />}
            {!found && failure && <ProblemNotice problem={failure} />}
            {warnings.length > 0 && <Findings title="Warnings" errors={warnings} harmless lineOf={lineOf} onGo={onGo} />}
          </div>
          {schema && <Help schema={schema} text={draft.text} cursor={cursor} />}
        </div>
      </div>
    </>
  );
}

/** The control plane's preview of the text once it is stable; until then the preview before it. `failure`: why there is none now. */
function usePreview(text: string) {
  const settled = useDebounced(text);
  const sweep = isSweep(settled);
  const query = useQuery({
    queryKey: ["preview", settled],
    queryFn: ({ signal }) => previewJob(settled, signal),
    enabled: !sweep,
    placeholderData: (before) => before,
    retry: false,
    gcTime: 0,
  });
  if (sweep) return { preview: null, problem: null, failure: null };
  const refused = isRefused(query.error) ? query.error : null;
  return { preview: query.data ?? null, problem: refused, failure: refused === null ? query.error : null };
}

/** The submission of the draft, and what begins it. It leads to the job, unless the form was left or its text changed meanwhile. */
function useSubmit({ text, keyOf, forget }: Draft) {
  const [, navigate] = useLocation();
  const submit = useMutation({ mutationFn: (sent: string) => submitted(sent, keyOf(sent)) });
  // Not an option of the mutation, which would be called after the form was left, too.
  const onSuccess = (address: string, sent: string) => { if (forget(sent)) navigate(address); };
  return [submit, () => { submit.mutate(text, { onSuccess }); }] as const;
}

/** The address of the job or of the sweep that a text has become. */
async function submitted(text: string, key: string): Promise<string> {
  return isSweep(text) ? sweepAddress((await submitSweep(text, key)).id) : jobAddress((await submitJob(text, key)).id);
}

/** Of the kind of spec that the text is. */
function useSchema(text: string): SchemaNode | null {
  const kind = kindOf(text);
  const { data } = useQuery({ queryKey: ["schema", kind], queryFn: ({ signal }) => getSchema(kind, signal), staleTime: Infinity });
  return data ?? null;
}

/** The findings whose field, or a field above it, is in the text. */
const marksOf = (text: string, errors: readonly FieldError[], harmless: boolean): Mark[] =>
  errors.flatMap(({ field, message, remedy }) => {
    const key = keyOf(text, field);
    return key ? [{ at: key.at, line: key.line, text: remedy === null ? message : `${message}\n${remedy}`, harmless }] : [];
  });

function Help({ schema, text, cursor }: { schema: SchemaNode; text: string; cursor: number }) {
  const path = pathAt(text, cursor);
  // The schema is that of a job.
  if (path[0] === "sweep") return null;
  return <FieldHelp help={help(schema, path)} path={path} />;
}
