/** The dialog that deletes a version. */

import { useMutation, useQueryClient } from "@tanstack/react-query";
import { deleteVersion, type Version } from "../../api/models";
import { Confirm } from "../../components/confirm";
import { ProblemNotice } from "../../components/problem-notice";

export function DeleteVersion({ version: { model, number }, onDone }: { version: Version; onDone: () => void }) {
  const client = useQueryClient();
  const remove = useMutation({
    mutationFn: () => deleteVersion(model, number),
    onSuccess: onDone,
    onSettled: () => client.invalidateQueries({ queryKey: ["model", model] }),
  });
  return (
    <Confirm title={`Delete version ${number} of ${model}?`} yes="Delete" no="Keep it" busy={remove.isPending} onYes={() => { remove.mutate(); }} onNo={onDone}>
      <p>Its checkpoint stays, and stays pinned. The number is not given again.</p>
      {remove.error && <ProblemNotice problem={remove.error} />}
    </Confirm>
  );
}
