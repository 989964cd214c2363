/** Who failed first and why, of the newest world that failed or stood still. */
import type { World } from "../api/types.ts";
import { Heading } from "../ui/parts.tsx";

export function Failure({ worlds }: { worlds: readonly World[] }) {
  const world = worlds.find((each) => each.diagnosis);
  const why = world?.diagnosis;
  if (!world || !why) return null;
  return (
    <section class="sec-s failure" aria-label="What failed">
      <Heading title="What failed" sub={`world ${world.epoch}, ${why.kind}`} />
      <p>{why.sentence}.</p>
      {why.next_step && <p class="cap12">Then: {why.next_step}.</p>}
      <dl class="about cap12">
        {why.evidence.map(({ label, value }) => <Fact key={label} name={label}>{value}</Fact>)}
      </dl>
      {why.traceback && <Text name="Traceback" text={why.traceback} />}
      {why.attachments.map(({ name, text }) => <Text key={name} name={name} text={text} />)}
    </section>
  );
}

function Fact({ name, children }: { name: string; children: string }) {
  return <><dt>{name}</dt><dd>{children}</dd></>;
}

function Text({ name, text }: { name: string; text: string }) {
  return <details><summary class="cap12">{name}</summary><pre tabIndex={0} aria-label={name}>{text}</pre></details>;
}
