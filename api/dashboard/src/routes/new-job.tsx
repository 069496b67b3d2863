/**
 * `/new`: write a spec, see at once what it would run as or what is wrong with it, and submit it.
 *
 * `/new?from=JOB&checkpoint=PATH` begins with that job's spec, to go on from the checkpoint, on whatever layout; without a checkpoint
 * it begins at the first step.
 */

import { useMutation, useQuery } from "@tanstack/react-query";
import { useCallback, useMemo, useState, type ReactNode } from "react";
import { Link, useLocation, useSearchParams } from "wouter";
import { Problem, toFieldErrors } from "../api/http";
import { getJob, type Job, previewJob, submitJob } from "../api/jobs";
import { getSchema } from "../api/schema";
import { listTemplates, type Template } from "../api/templates";
import { Confirm } from "../components/confirm";
import { ProblemNotice } from "../components/problem-notice";
import { FieldHelp } from "../features/new-job/field-help";
import { Findings } from "../features/new-job/findings";
import { PreviewFacts } from "../features/new-job/preview-facts";
import { SpecEditor } from "../features/new-job/spec-editor";
import { useDraft } from "../features/new-job/use-draft";
import { useDebounced } from "../hooks/use-debounced";
import { useTitle } from "../hooks/use-title";
import { jobAddress } from "../model/addresses";
import { childSpec } from "../model/checkpoints";
import { help } from "../model/schema";
import { keyOf, pathAt } from "../model/spec-keys";
import { toYaml } from "../model/yaml";
import "../features/new-job/new-job.css";

export function NewJobPage() {
  useTitle("New job");
  const [params] = useSearchParams();
  const parent = params.get("from");
  return <main className="page">{parent === null ? <Anew /> : <Child id={parent} checkpoint={params.get("checkpoint")} />}</main>;
}

function Anew() {
  const templates = useTemplates();
  return (
    <>
      {templates.error && <ProblemNotice problem={templates.error} />}
      {templates.data ? <Editor templates={templates.data} first={templates.data[0]?.text ?? ""} /> : <h1>New job</h1>}
    </>
  );
}

function Child({ id, checkpoint }: { id: string; checkpoint: string | null }) {
  const templates = useTemplates();
  const parent = useQuery({ queryKey: ["job", id], queryFn: ({ signal }) => getJob(id, signal), staleTime: Infinity });
  const problem = parent.error ?? templates.error;
  if (!parent.data || !templates.data) return <>{problem ? <ProblemNotice problem={problem} /> : <h1>New job</h1>}</>;
  return (
    <Editor
      key={`${id} ${checkpoint ?? ""}`}
      templates={templates.data}
      first={toYaml(childSpec(parent.data, checkpoint))}
      of={`${id}.${checkpoint ?? ""}`}
      note={<Origin parent={parent.data} checkpoint={checkpoint} />}
    />
  );
}

function Origin({ parent, checkpoint }: { parent: Job; checkpoint: string | null }) {
  return (
    <p className="origin quiet">
      {checkpoint === null ? "The spec of " : "Resumes from "}
      {checkpoint !== null && <><code>{checkpoint.split("/").at(-1)}</code> of </>}
      <Link href={jobAddress(parent.id)}>{parent.name}</Link>
      {checkpoint === null ? ". Change it as needed." : ". You can change train.layout: a checkpoint loads on any layout. Steps are counted from the beginning of that job."}
    </p>
  );
}

const useTemplates = () => useQuery({ queryKey: ["templates"], queryFn: ({ signal }) => listTemplates(signal), staleTime: Infinity });

interface EditorProps {
  templates: readonly Template[];
  /** The text to begin with. */
  first: string;
  /** What it was made out of. */
  of?: string;
  note?: ReactNode;
}

function Editor({ templates, first, of, note }: EditorProps) {
  const draft = useDraft(first, of);
  const [cursor, setCursor] = useState(0);
  const [goTo, setGoTo] = useState<{ at: number } | null>(null);
  const { preview, problem } = usePreview(draft.text);
  const submit = useSubmit(draft);
  const found = problem ?? (submit.error instanceof Problem && !submit.error.retryable ? submit.error : null);
  const lineOf = useCallback((field: string) => keyOf(draft.text, field)?.line ?? null, [draft.text]);
  const onGo = (field: string) => { setGoTo({ at: keyOf(draft.text, field)?.at ?? 0 }); };
  const wrong = useMemo(() => new Set((found?.errors ?? []).flatMap(({ field }) => lineOf(field) ?? [])), [found, lineOf]);

  return (
    <>
      <div className="page-head">
        <h1>New job</h1>
        <button className="button primary" disabled={submit.isPending} onClick={() => { submit.mutate(); }}>
          {submit.isPending ? "Submitting…" : "Submit"}
        </button>
      </div>
      {note}
      {submit.error && submit.error !== found && <ProblemNotice problem={submit.error} stale />}
      <div className="columns">
        <section className="card" aria-label="Spec">
          <div className="card-head">
            <h2>Spec</h2>
            <Templates templates={templates} text={draft.text} onText={draft.change} />
          </div>
          <SpecEditor text={draft.text} onText={draft.change} onCursor={setCursor} wrong={wrong} goTo={goTo} />
        </section>
        <div className="stack">
          <div id="spec-findings" aria-live="polite">
            {found && <Findings title={found.title} errors={found.findings} lineOf={lineOf} onGo={onGo} />}
            {!found && preview && <PreviewFacts preview={preview} />}
            {!found && preview && preview.warnings.length > 0 && (
              <Findings title="Fields without effect" errors={toFieldErrors(preview.warnings)} harmless lineOf={lineOf} onGo={onGo} />
            )}
          </div>
          <Help text={draft.text} cursor={cursor} />
        </div>
      </div>
    </>
  );
}

/** What the control plane says of the text, once it has stood still; what it said last stays meanwhile. */
function usePreview(text: string) {
  const settled = useDebounced(text);
  const query = useQuery({
    queryKey: ["preview", settled],
    queryFn: ({ signal }) => previewJob(settled, signal),
    placeholderData: (before) => before,
    retry: false,
    gcTime: 0,
  });
  const refused = query.error instanceof Problem && !query.error.retryable ? query.error : null;
  return { preview: query.data ?? null, problem: refused };
}

function useSubmit(draft: { text: string; key: string; forget: () => void }) {
  const [, navigate] = useLocation();
  return useMutation({
    mutationFn: () => submitJob(draft.text, draft.key),
    onSuccess: (job) => {
      draft.forget();
      navigate(jobAddress(job.id));
    },
  });
}

function Help({ text, cursor }: { text: string; cursor: number }) {
  const { data } = useQuery({ queryKey: ["schema"], queryFn: ({ signal }) => getSchema(signal), staleTime: Infinity });
  const path = pathAt(text, cursor);
  return data ? <FieldHelp help={help(data, path)} path={path} /> : null;
}

interface TemplatesProps {
  templates: readonly Template[];
  text: string;
  onText: (text: string) => void;
}

/** What somebody wrote is not replaced unasked. */
function Templates({ templates, text, onText }: TemplatesProps) {
  const [asked, ask] = useState<Template | null>(null);
  const shown = templates.find((one) => one.text === text);
  const choose = (name: string) => {
    const wanted = templates.find((one) => one.name === name) ?? null;
    if (shown === undefined && text.trim() !== "") ask(wanted);
    else if (wanted) onText(wanted.text);
  };
  return (
    <>
      <label className="templates">
        <span className="quiet">Template</span>
        <select value={shown?.name ?? ""} title={shown?.about} onChange={(event) => { choose(event.target.value); }}>
          {shown === undefined && <option value="">custom</option>}
          {templates.map(({ name }) => <option key={name} value={name}>{name}</option>)}
        </select>
      </label>
      {asked && (
        <Confirm
          title={`Replace the spec with ${asked.name}?`}
          yes="Replace the spec"
          no="Keep my text"
          busy={false}
          onYes={() => { onText(asked.text); ask(null); }}
          onNo={() => { ask(null); }}
        >
          <p>{asked.about}</p>
          <p>Your text will be lost.</p>
        </Confirm>
      )}
    </>
  );
}
