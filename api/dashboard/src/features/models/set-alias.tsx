/** The dialog that lets an alias name a version. It is refused if the alias was moved since the page read it. */

import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { type Model, setAlias, type Version } from "../../api/models";
import { Confirm } from "../../components/confirm";
import { ProblemNotice } from "../../components/problem-notice";

export function SetAlias({ model, version, onDone }: { model: Model; version: Version; onDone: () => void }) {
  const client = useQueryClient();
  const [alias, setName] = useState(model.aliases[0]?.name ?? "production");
  const named = model.aliases.find(({ name }) => name === alias)?.version ?? 0;
  const set = useMutation({
    mutationFn: () => setAlias(model.name, alias, version.number, named),
    onSuccess: onDone,
    onSettled: () => client.invalidateQueries({ queryKey: ["model", model.name] }),
  });
  return (
    <Confirm title={`Name version ${version.number} of ${model.name}`} yes="Set the alias" no="Close" harmless busy={set.isPending || alias === ""} onYes={() => { set.mutate(); }} onNo={onDone}>
      <div className="form">
        <label className="form-wide">
          Alias
          <input maxLength={63} spellCheck={false} value={alias} onChange={(event) => { setName(event.target.value); }} />
        </label>
      </div>
      <p>{named === 0 ? "It is a new alias." : `It names version ${named} now.`} Jobs that were submitted before keep their version.</p>
      {set.error && <ProblemNotice problem={set.error} />}
    </Confirm>
  );
}
