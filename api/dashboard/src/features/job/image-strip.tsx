/** One name's images: the one at the chosen step, and a slider over the steps that have one. Only the shown one is loaded. */

import { useId, useState } from "react";
import { addressOfContent, type Artifact } from "../../api/artifacts";
import { integer } from "../../model/format";

export interface ImageStripProps {
  name: string;
  images: readonly Artifact[];
  /** Where later steps may not be loaded yet: how they are. */
  more: { busy: boolean; onMore: () => void } | null;
}

export function ImageStrip({ name, images, more }: ImageStripProps) {
  const id = useId();
  // The newest one, until a step is chosen.
  const [chosen, choose] = useState<number | null>(null);
  const place = Math.min(chosen ?? images.length - 1, images.length - 1);
  const image = images[place];
  if (!image) return null;
  const step = image.step === null ? "no step" : `step ${integer(image.step)}`;
  return (
    <figure className="image-strip">
      <a href={image.address}><img src={addressOfContent(image)} alt={`${name}, ${step}`} loading="lazy" /></a>
      <figcaption><label htmlFor={id}>{name}</label> <span className="quiet">{step}</span></figcaption>
      <input
        id={id}
        type="range"
        min={0}
        max={Math.max(0, images.length - 1)}
        value={place}
        disabled={images.length < 2}
        aria-valuetext={step}
        onChange={({ target }) => { choose(Number(target.value)); }}
      />
      {more && <p className="quiet">Later steps are not loaded yet. <button className="button small" disabled={more.busy} onClick={more.onMore}>More steps</button></p>}
    </figure>
  );
}
