// The formulas of the Arithmetic view, in MathML.
import type { ComponentChildren } from "preact";
import type { AttentionInfo } from "./types";

/** A letter with a subscript. */
function Sub({ of, at }: { of: string; at: string }) {
  return (
    <msub>
      <mi>{of}</mi>
      <mrow>
        {[...at].map((letter) => (
          <mi>{letter}</mi>
        ))}
      </mrow>
    </msub>
  );
}

/** Brackets that keep their size, unlike those of <mo>. */
function Paren({ children }: { children: ComponentChildren }) {
  return (
    <mrow>
      <mtext>(</mtext>
      {children}
      <mtext>)</mtext>
    </mrow>
  );
}

/** "q i  rivière". */
export function Of({ of, at, word }: { of: string; at: string; word?: string }) {
  return (
    <>
      <math>
        <Sub of={of} at={at} />
      </math>{" "}
      {word !== undefined && <em>{word}</em>}
    </>
  );
}

function Tanh() {
  return (
    <>
      <mspace width="0.2em" />
      <mi>tanh</mi>
    </>
  );
}

function Sum({ over }: { over: string }) {
  return (
    <munder>
      <mo>∑</mo>
      <mi>{over}</mi>
    </munder>
  );
}

function Power({ to }: { to: string }) {
  return (
    <msup>
      <mi>e</mi>
      <mrow>
        <Sub of="s" at={to} />
        <mo>−</mo>
        <mi>m</mi>
      </mrow>
    </msup>
  );
}

function Line({ left, at, children }: { left: string; at: string; children: ComponentChildren }) {
  return (
    <math display="block">
      <Sub of={left} at={at} />
      <mo>=</mo>
      {children}
    </math>
  );
}

/** How q, k and v are computed; attention without projections uses the vectors as they are. */
export function ProjectionFormulas({ attention, bare }: { attention: AttentionInfo; bare: boolean }) {
  return (
    <>
      {(["q", "k", "v"] as const).map((name) => (
        <Line key={name} left={name} at={name === "q" ? "i" : "j"}>
          <Prepared name={name} attention={attention} bare={bare} />
        </Line>
      ))}
    </>
  );
}

/** What the score does with a query or a key before comparing them. */
function Prepared({ name, attention, bare }: { name: "q" | "k" | "v"; attention: AttentionInfo; bare: boolean }) {
  const at = name === "q" ? "i" : "j";
  const product = (
    <>
      <Sub of="x" at={at} />
      {!bare && <Sub of="W" at={name.toUpperCase()} />}
    </>
  );
  if (name === "v") return product;
  const rotated =
    attention.position === "rope" ? (
      <>
        <Sub of="R" at={at} />
        <Paren>{product}</Paren>
      </>
    ) : (
      product
    );
  const { kind } = attention.score;
  const matrix = { dot: "", other: "", cosine: "", bilinear: name === "q" ? "W" : "", "reduced-rank": name === "q" ? "U" : "V", additive: name === "q" ? "W" : "U" }[kind];
  if (kind === "cosine")
    return (
      <mfrac>
        <mrow>{rotated}</mrow>
        <mrow>
          <mo>‖</mo>
          {rotated}
          <mo>‖</mo>
        </mrow>
      </mfrac>
    );
  return (
    <>
      {matrix && <mi>{matrix}</mi>}
      {rotated}
      {kind === "additive" && name === "k" && (
        <>
          <mo>+</mo>
          <mi>b</mi>
        </>
      )}
    </>
  );
}

export function ScoreFormula({ attention }: { attention: AttentionInfo }) {
  const { kind, cap } = attention.score;
  return (
    <>
      {kind === "additive" ? (
        <>
          <Line left="s" at="ij">
            <Sum over="d" />
            <Sub of="v" at="d" />
            <Tanh />
            <Paren>
              <Sub of="q" at="id" />
              <mo>+</mo>
              <Sub of="k" at="jd" />
            </Paren>
          </Line>
          <p class="soft">
            That is e = v · tanh(W q + U k + b). This v is a parameter of the score, not a value.
          </p>
        </>
      ) : (
        <Line left="s" at="ij">
          <mtext>scale</mtext>
          <mo>·</mo>
          <Sum over="d" />
          <Sub of="q" at="id" />
          <Sub of="k" at="jd" />
        </Line>
      )}
      {cap !== null && (
        <math display="block">
          <mi>s</mi>
          <mo>←</mo>
          <mn>{cap}</mn>
          <Tanh />
          <Paren>
            <mi>s</mi>
            <mo>/</mo>
            <mn>{cap}</mn>
          </Paren>
        </math>
      )}
      {attention.bias && (
        <math display="block">
          <mi>s</mi>
          <mo>←</mo>
          <mi>s</mi>
          <mo>+</mo>
          <Sub of="b" at="ij" />
        </math>
      )}
    </>
  );
}

export function SoftmaxFormula() {
  return (
    <>
      <Line left="a" at="ij">
        <mfrac>
          <Power to="ij" />
          <mrow>
            <Sum over="l" />
            <Power to="il" />
          </mrow>
        </mfrac>
      </Line>
      <p class="soft">m is the largest score that is not masked.</p>
    </>
  );
}

export function OutputFormula() {
  return (
    <Line left="y" at="i">
      <Sum over="j" />
      <Sub of="a" at="ij" />
      <Sub of="v" at="j" />
    </Line>
  );
}

/** What is done with the output of a head after that. */
export function JoinedHeads({ heads }: { heads: number }) {
  return (
    <p class="soft">
      {heads > 1 ? `The outputs of the ${heads} heads are then joined and multiplied by W` : "The output is then multiplied by W"}
      <sub>O</sub>.
    </p>
  );
}

export function CheckFormula() {
  return <p class="soft">Computed again here in float64, from the model's float32 vectors.</p>;
}
