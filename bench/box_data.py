"""Data for the models in the box that is derived from Tatoeba: English sentences, and sentences labelled by topic.

`english.*.txt` are the English sides of both Tatoeba sets without duplicates. A sentence of a validation or test part
is in no training file, whatever its case and punctuation. `topics.*.tsv` are those sentences that contain keywords of
exactly one topic, so their labels were not made by people.
"""

import re
from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path

PARTS = ("train", "val", "test")
TOPICS = {
    "family": "mother father parents brother brothers sister sisters son sons daughter daughters uncle aunt cousin "
    "wife husband grandfather grandmother grandparents baby babies child children kids family families "
    "twins married marry wedding marriage divorce divorced nephew niece mom dad mum boyfriend girlfriend "
    "fiance engaged born birthday relatives grandson granddaughter",
    "food": "eat eats ate eaten eating food bread cheese soup meat rice vegetables fruit cake cook cooking cooked "
    "meal meals lunch dinner breakfast supper hungry thirsty delicious restaurant coffee tea wine beer "
    "milk juice sugar salt butter eggs egg chicken potatoes pizza sandwich dessert apple apples oranges "
    "cookies chocolate candy pie taste tastes drink drinks drank drinking kitchen menu recipe salad steak "
    "onions tomatoes banana bananas fork spoon cream bakery baked pepper jam dish dishes grapes sauce cup",
    "health": "doctor doctors hospital sick ill illness disease medicine headache fever cancer cough pain hurt "
    "hurts dentist nurse patient patients surgery operation blood health healthy diet stomach toothache "
    "tooth teeth throat injured wounded pills pill vaccine allergic allergy drug drugs broken bones ankle "
    "breathe cold flu smoking weight pregnant medical symptoms ache wound knee",
    "law": "police policeman policemen cop cops thief thieves crime criminal murder murdered prison jail "
    "arrested arrest lawyer judge court guilty innocent law laws illegal stole stolen steal stealing "
    "robbed robber killed killer gun weapon prisoner prisoners victim witness suspect evidence trial "
    "kidnapped sentenced accused detective shot escaped",
    "leisure": "music song songs guitar piano violin sing sings sang singing singer concert dance dancing tennis "
    "soccer football baseball basketball golf swim swimming swimmer game games chess movie movies film "
    "films theater novel novels team player players ski skiing skating hobby hobbies painting paintings "
    "paint museum band orchestra toy poker fishing camping party guitarist goal match race stadium actor "
    "actress play playing",
    "nature": "rain rains rained raining rainy snow snows snowing snowed weather wind windy storm cloud clouds "
    "cloudy sun sunny sky moon stars earth river lake mountain mountains hill forest woods tree trees "
    "flower flowers roses garden grass dog dogs cat cats bird birds horse horses animal animals fish cow "
    "cows sheep bear bears snake insects elephant elephants lion temperature climate winter summer spring "
    "autumn ocean sea island beach earthquake leaves sunset sunrise fog",
    "school": "school schools teacher teachers student students study studies studied studying homework exam exams "
    "examination class classes classroom lesson lessons university college mathematics math learn "
    "learning learned teach teaches taught teaching professor grade grades grammar dictionary english "
    "french german japanese chinese spanish language languages textbook pencil blackboard graduated "
    "pronunciation vocabulary translate translation science history essay",
    "travel": "train trains bus buses plane airplane flight fly airport station trip travel traveling traveled "
    "travelled journey passport luggage suitcase suitcases hotel tourist tourists ticket tickets taxi "
    "drive drives driving drove driver car cars truck road highway traffic bicycle bike motorcycle ship "
    "boat abroad vacation map passengers subway platform harbor sail cruise parked parking bridge",
    "work": "job jobs boss office company companies business salary salaries income employee employees employer "
    "hired hire fired resign resigned meeting customers customer money dollars dollar price prices pay "
    "pays paid paying expensive cheap buy buys bought sell sells sold bank banks debt debts loan tax "
    "taxes factory workers worker market manager secretary project contract afford earn earns earned owe "
    "owes rent rich poor promotion career profit interview economy cost costs stock shopping unemployed",
}


def write_box_data(tatoeba: Path, folder: Path) -> None:
    """Write the derived files into `folder` from the files of `regard data tatoeba`."""
    folder.mkdir(parents=True, exist_ok=True)
    held_back: set[str] = set()
    for part in reversed(PARTS):  # what is in the test part is not validated on, and neither is trained on
        sentences = list(_sentences(tatoeba, part, held_back))
        held_back |= {_bare(sentence) for sentence in sentences}
        (folder / f"english.{part}.txt").write_text("".join(f"{one}\n" for one in sentences), encoding="utf-8")
        rows = (f"{label}\t{text}\n" for text, label in label_by_keywords(sentences))
        (folder / f"topics.{part}.tsv").write_text("label\ttext\n" + "".join(rows), encoding="utf-8")


def _sentences(tatoeba: Path, part: str, held_back: set[str]) -> Iterator[str]:
    """Yield the English sentences of a part, each once, in an order that does not depend on the files'."""
    names = (f"{pair}.{part}.en" for pair in ("de-en", "fr-en"))
    found = {line.strip() for name in names for line in (tatoeba / name).read_text(encoding="utf-8").splitlines()}
    ordered = sorted(found, key=lambda text: sha256(text.encode()).digest())
    return (text for text in ordered if "\t" not in text and _bare(text) and _bare(text) not in held_back)


def _bare(text: str) -> str:
    """Return a sentence without case and punctuation."""
    return " ".join(re.findall(r"\w+", text.lower()))


def label_by_keywords(sentences: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the sentences with keywords of exactly one topic, and the topic."""
    topic_of = {word: topic for topic, words in TOPICS.items() for word in words.split()}
    for text in sentences:
        found = {topic_of[word] for word in _bare(text).split() if word in topic_of}
        if len(found) == 1:
            yield text, found.pop()
