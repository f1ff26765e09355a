"""What texts and questions are compared by: words in many languages, and what has its own form."""

import pytest

from pipeline.reading.index import Entry, Mode, ScopeIndex
from pipeline.reading.terms import terms_of
from tests.builders import SAID_AT

TEXTS = {
    "english": "She was running past the old houses near the harbours.",
    "german": "Ich habe mit meiner Schwester zwei alte Häuser in der Stadt gekauft.",
    "french": "Nous avons acheté des maisons anciennes dans le village de ma mère.",
    "spanish": "Mi hermano tiene muchas canciones y las canta en la cocina.",
    "russian": "Вчера мы читали интересные книги о кошках.",
    "arabic": "اشتريت الكتب من المكتبة",
    "hindi": "मुझे हिन्दी किताबें पढ़ना पसंद है",
    "chinese": "用户住在杭州西湖边,养了一只猫。",
    "japanese": "東京タワーの近くでラーメンを食べた。",
    "korean": "서울에서 작은 집을 샀다.",
    "thai": "ผมอาศัยอยู่ที่เชียงใหม่กับแมวสองตัว",
    "lao": "ຂ້ອຍຢູ່ວຽງຈັນ",
    "khmer": "ខ្ញុំរស់នៅភ្នំពេញ",
    "burmese": "ကျွန်တော်ရန်ကုန်မှာနေတယ်",
    "invoice": "The invoice INV-2024-0042 went to anna.berg@example.com.",
    "other invoice": "The invoice INV-2024-0043 went to nobody.",
    "path": "It is in /usr/local/share/wine, release v1.12.3.",
    "wide": "ＡＣＭＥ　ｓｅｎｔ　ｔｈｅ　ｃａｆé　ｂｉｌｌ",
}


@pytest.fixture(scope="module")
def index() -> ScopeIndex:
    index = ScopeIndex()
    for key, text in TEXTS.items():
        index.put(Entry(key=key, text=text, said_at=SAID_AT))
    return index


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("house by a harbour", "english"),
        ("did she run?", "english"),
        ("Haus", "german"),
        ("HÄUSERN", "german"),
        ("hauser", "german"),
        ("maison ancienne", "french"),
        ("canción", "spanish"),
        ("cancion", "spanish"),
        ("книга", "russian"),
        ("кошки", "russian"),
        ("كتاب المكتبة", "arabic"),
        ("किताब", "hindi"),
        ("他在杭州做什么", "chinese"),
        ("猫", "chinese"),
        ("どこでラーメンを食べましたか", "japanese"),
        ("집", "korean"),
        ("서울은 어때?", "korean"),
        ("เชียงใหม่", "thai"),
        ("ວຽງຈັນ", "lao"),
        ("ភ្នំពេញ", "khmer"),
        ("ရန်ကုန်", "burmese"),
        ("INV-2024-0042", "invoice"),
        ("what became of inv-2024-0042?", "invoice"),
        ("0042", "invoice"),
        ("anna.berg@example.com", "invoice"),
        ("Berg", "invoice"),
        ("INV-2024-0043", "other invoice"),
        ("/usr/local/share/wine", "path"),
        ("v1.12.3", "path"),
        ("acme cafe", "wide"),
    ],
)
def test_a_text_is_found_in_its_language(index: ScopeIndex, query: str, expected: str) -> None:
    found = index.search(query, None, Mode.TEXT, 1)

    assert [hit.key for hit in found] == [expected]


def test_the_filler_words_of_a_question_do_not_decide(index: ScopeIndex) -> None:
    filled = ScopeIndex()
    for number in range(20):
        text = "What is it that you did when you did it?" if number % 2 else f"note {number}"
        filled.put(Entry(key=str(number), text=text, said_at=SAID_AT))
    filled.put(Entry(key="porto", text="My sister moved to Porto in the spring", said_at=SAID_AT))

    assert filled.search("What is it that you did in Porto?", None, Mode.TEXT, 1)[0].key == "porto"


def test_what_has_a_form_of_its_own_is_one_term_and_its_parts() -> None:
    assert list(terms_of("INV-2024-0042").terms) == ["inv", "2024", "0042", "inv-2024-0042"]


@pytest.mark.parametrize("text", ["", " ", "?!", "\u0301", "_", "🎉", "\x00"])
def test_what_has_no_words_has_no_terms_or_harmless_ones(text: str) -> None:
    index = ScopeIndex()

    index.put(Entry(key="odd", text=text, said_at=SAID_AT))

    assert index.search("words", None, Mode.TEXT, 1) == []


@pytest.mark.parametrize("text", ["a" * 100_000, "ä" * 100_000, "1" * 100_000, "a1" * 100_000])
def test_a_text_without_end_makes_no_term_without_end(text: str) -> None:
    assert max(map(len, terms_of(text).terms)) <= 100


def test_an_accent_hides_no_ending_in_english() -> None:
    assert terms_of("two résumés").terms == terms_of("two resumes").terms
