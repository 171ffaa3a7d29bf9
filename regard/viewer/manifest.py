"""The manifest of a recording: what was recorded, as the JSON object that the page reads.

`web/src/types.ts` declares the same types; a test compares the two. Everything is counted from 0, except layers, which
are counted from 1, as people read them.
"""

from typing import Literal, TypedDict

FORMAT = 1
THUMBNAIL = 32  # rows and columns of a head in the overview, at most

AttentionKind = Literal["encoder", "decoder", "cross", "self"]
ScoreKind = Literal["dot", "cosine", "bilinear", "reduced-rank", "additive", "other"]  # other: registered by the user
PositionKind = Literal["sinusoidal", "learned", "linear", "rope", "alibi", "relative-bias"]
BlobKind = Literal[
    "all_weights",
    "weights",
    "pooled",
    "overview",
    "mask",
    "input",
    "vectors",
    "row",
    "hidden",
    "next",
    "lens",
    "vocabulary",
    "position",
    "similarity",
    "image",
    "rollout",
    "signal",
]


class Token(TypedDict):
    """One token; tokens with the same `word` are pieces of one word, and special tokens have -1."""

    text: str
    id: int
    special: bool
    word: int


class ScoreInfo(TypedDict):
    """How an attention scores a query and a key."""

    kind: ScoreKind
    scale: float
    cap: float | None


class StatisticsInfo(TypedDict):
    """Statistics of the heads, as [step][head]; None where a statistic is undefined."""

    entropy: list[list[float | None]]
    distance: list[list[float | None]]
    previous: list[list[float | None]]
    first: list[list[float | None]]


class AttentionShape(TypedDict):
    """What is known of an attention before its weights are computed."""

    id: str  # kind and layer: "cross.2"
    kind: AttentionKind
    layer: int
    name: str  # of the module: "stack.layers.0.mixer"
    heads: int
    groups: int  # query heads that share a key head; 1 unless grouped
    queries: str  # the sequence of the rows
    keys: str  # the sequence of the columns
    rows: int
    columns: int
    mask: str | None  # the name of its mask; None: every key is visible
    score: ScoreInfo
    position: str | None
    bias: bool
    input: int  # width of the vectors that queries are computed from
    width: int  # of a query or key
    value: int  # width of a value
    arithmetic: bool  # whether vectors and rows are stored
    pooled: list[int] | None  # too large to send: rows and columns of the max-pooled picture


class AttentionInfo(AttentionShape):
    """One attention, with the statistics of its heads."""

    statistics: StatisticsInfo


class Cell(TypedDict):
    """One weight: where the page begins."""

    attention: str
    head: int
    query: int
    key: int


class HiddenInfo(TypedDict):
    """The hidden states of a sequence; layer 0 is the embedding."""

    sequence: str
    layers: int
    width: int


class NextInfo(TypedDict):
    """Next-token scores: the sequence, its first generated token, and the size of the vocabulary."""

    sequence: str
    begin: int
    vocabulary: int


class AnswerGuess(TypedDict):
    """One answer with its probability."""

    text: str
    probability: float


class Answer(TypedDict):
    """The best answers to one question, such as the label of a text."""

    question: str
    guesses: list[AnswerGuess]


class LayerGuesses(TypedDict):
    """What a layer would write next; layer 0 is the embedding."""

    layer: int
    guesses: list[AnswerGuess]


class PositionInfo(TypedDict):
    """A table of positions, and matrices of the similarity between two positions."""

    name: str
    kind: PositionKind
    rows: int
    columns: int
    rowLabel: str
    columnLabel: str
    similarities: int  # how many matrices of size x size
    size: int
    note: str


class ImageInfo(TypedDict):
    """How an image is cut into patches; `first` is the token of the first patch."""

    rows: int
    columns: int
    first: int
    width: int
    height: int


class SignalInfo(TypedDict):
    """One vector that a recurrent layer computes at each token: its state, or a gate."""

    name: str
    about: str
    gate: bool  # its numbers are between 0 and 1


class RecurrenceInfo(TypedDict):
    """One recurrent layer."""

    id: str  # sequence and layer: "source-1-backward"
    name: str  # of the module
    cell: str  # its class: "LSTM"
    sequence: str
    layer: int
    backward: bool  # it reads from the end
    rows: int  # tokens
    width: int  # numbers of a signal
    unit: str  # what each of them belongs to: "unit" or "head"
    signals: list[SignalInfo]


class Manifest(TypedDict):
    """Everything about a recording except its numbers, which are in blobs."""

    format: int
    title: str
    model: str
    text: str
    written: str | None  # what the model generated
    notes: list[str]  # sentences for the reader
    sequences: dict[str, list[Token]]
    noun: str  # what a token is called: "word", "residue", "patch" or "step"
    attentions: list[AttentionInfo]
    whole: bool  # the weights of all heads of a step are one blob
    steps: list[int]  # training steps; empty for an ordinary recording
    begin: Cell | None
    hidden: list[HiddenInfo]
    next: NextInfo | None
    lens: bool  # whether there is what each layer would write next
    answers: list[Answer]
    contacts: list[list[int]]  # pairs of residues that the model believes to be in contact, the likeliest first
    positions: list[PositionInfo]
    image: ImageInfo | None
    rollout: bool
    recurrences: list[RecurrenceInfo]
    thumbnail: int  # rows and columns of a head in the overview, at most
    places: list[str]  # where the model can be changed; empty: there is no model to change
    blobs: dict[BlobKind, str]  # the pattern of each kind of blob's name


class ChangeResult(TypedDict):
    """How a changed model differs from the original, on the same tokens."""

    moved: dict[str, list[float]]  # of each head of each attention: total variation of its weights
    loss: list[float] | None  # of the text, before and after
    code: str  # the changes in Python


class HeadScoresResult(TypedDict):
    """Scores of all heads: by their name, then by attention, a number for each head."""

    scores: dict[str, dict[str, list[float]]]


class WrittenResult(TypedDict):
    """What a model writes by itself, before and after a change."""

    written: list[str | None]


class RecordingInfo(TypedDict):
    """One entry of recordings.json."""

    id: str
    title: str
    model: str
    text: str


class ModelInfo(TypedDict):
    """One entry of models.json."""

    name: str
    what: str
    verbs: list[str]
    ready: bool
    error: str | None
    image: bool
    path: str
