/** Text with a button that copies it. */

import { useState } from "react";

export function CopyableText({ text, label }: { text: string; label: string }) {
  return (
    <div className="copyable-text">
      <pre tabIndex={0} aria-label={label}>{text}</pre>
      <CopyButton text={text} />
    </div>
  );
}

/** `label`: what it says before it is pressed. */
export function CopyButton({ text, label = "Copy" }: { text: string; label?: string }) {
  const [copied, setCopied] = useState(false);
  const copy = () => {
    // Absent outside secure contexts (plain http from another machine): then selecting by hand is the way.
    const clipboard = navigator.clipboard as Clipboard | undefined;
    void clipboard?.writeText(text).then(() => {
      setCopied(true);
      setTimeout(() => { setCopied(false); }, 1500);
    });
  };
  return <button type="button" className="button small" onClick={copy}>{copied ? "Copied" : label}</button>;
}
