"""Names that columns of tables usually have: of texts, labels, languages, and of what is about a row."""

import re

LABEL_NAMES = (
    *("labels", "class", "category", "sentiment", "polarity", "intent", "emotion", "topic", "rating", "stars"),
    *("score", "target"),
)
TEXT_NAMES = (  # only to recognise a header
    *("text", "sentence", "review", "review_body", "comment", "content", "body", "document", "message", "tweet"),
    *("utterance", "question", "answer", "sentence1", "sentence2", "premise", "hypothesis", "description", "headline"),
    *("title", "abstract", "summary", "article", "paragraph"),
)
METADATA_NAMES = {
    *("", "id", "idx", "index", "uid", "uuid", "guid", "key", "row", "nr", "url", "uri", "link", "date", "time"),
    *("timestamp", "user", "username", "language", "lang", "locale", "country", "split", "fold", "file", "filename"),
    *("path", "hash", "score", "scores", "similarity", "confidence", "probability", "prob", "weight", "length", "len"),
    *("count", "votes", "likes", "rank", "author", "bleu", "chrf", "comet"),
}
METADATA_ENDINGS = METADATA_NAMES - {"", "key", "row", "link", "user", "file", "weight", "rank", "country", "author"}
_CODES = """
aa ab ae af ak am an ar as av ay az ba be bg bh bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de dv dz ee el en eo
es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia ie ig ii ik io is it iu ja jv ka kg ki
kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh mi mk ml mn mr ms mt my na nb nd ne ng nl nn no
nr nv ny oc oj om or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg si sk sl sm sn so sq sr ss st su sv sw ta te
tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu ara ben bul cat ces cze cmn zho dan
deu ger ell eng epo est eus fas fin fra fre gle heb hin hrv hun ind isl ita jpn kat kor lat lav lit mkd nld dut nob
nor pol por ron rus slk slv spa sqi srp swa swe tam tel tha tur ukr urd vie
"""  # of ISO 639, without "id": such a column numbers the rows
_LANGUAGES = """
arabic basque bengali bulgarian catalan chinese croatian czech danish dutch english esperanto estonian finnish
french georgian german greek hebrew hindi hungarian icelandic indonesian irish italian japanese korean latin latvian
lithuanian macedonian norwegian persian polish portuguese romanian russian serbian slovak slovenian spanish swahili
swedish tamil thai turkish ukrainian urdu vietnamese welsh
"""
LANGUAGE_NAMES = frozenset((_CODES + _LANGUAGES).split())
_LANGUAGE_CODE = re.compile(r"([a-z]{2,3})([-_][a-z]{2,4})?")  # de, en-US, deu_Latn


def is_language(name: str) -> bool:
    """Return whether a name is that of a language, or its code: German, de, de-AT, deu."""
    name = name.strip().casefold()
    code = _LANGUAGE_CODE.fullmatch(name)
    return name in LANGUAGE_NAMES or (code is not None and code[1] in LANGUAGE_NAMES)


def is_metadata(name: str) -> bool:
    """Return whether a name says that a column is about a row: its number, score, date or address."""
    name = name.strip().casefold()
    parts = [part for part in re.split(r"[\W_]+", name) if part]
    return name in METADATA_NAMES or name.startswith("unnamed: ") or (len(parts) > 1 and parts[-1] in METADATA_ENDINGS)
