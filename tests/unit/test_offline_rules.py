"""Laws of the offline extractor's rules, in the languages they read."""

import json
import re
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from compose.offline.rules import SpokenTurn, remember
from schemas.memory import ITEM_TYPES, Kind

AT = datetime(2026, 3, 10, 9, 0, tzinfo=UTC)


def _answer(*contents: str, role: str = "user", context: tuple[str, ...] = ()) -> dict[str, Any]:
    earlier = [
        SpokenTurn(seq=seq, role="user", content=content, at=AT)
        for seq, content in enumerate(context, start=1)
    ]
    turns = [
        SpokenTurn(seq=seq, role=role, content=content, at=AT)
        for seq, content in enumerate(contents, start=len(earlier) + 1)
    ]
    return remember(turns, earlier).as_answer()


def _facts(*contents: str) -> list[tuple[str, str, str, str]]:
    return [
        (item["subject"], item["attribute"], item["label"], item["relation"])
        for item in _answer(*contents)["semantic"]
    ]


def _items(answer: dict[str, Any]) -> list[tuple[Kind, dict[str, Any]]]:
    return [(kind, item) for kind in Kind for item in answer[kind]]


# --- what is kept --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "attribute", "label"),
    [
        ("I live in Porto.", "home", "Porto"),
        ("Hi! My name is Noor.", "name", "Noor"),
        ("I'm 34 years old.", "age", "34"),
        ("I was born in Ghent.", "origin", "Ghent"),
        ("My birthday is on 4 May.", "birthday", "4 May"),
        ("I work as a nurse.", "occupation", "nurse"),
        ("I work at Initech.", "employer", "Initech"),
        ("I study architecture in Delft.", "education", "architecture in Delft"),
        ("I'm allergic to peanuts.", "allergy", "peanuts"),
        ("I'm vegetarian.", "diet", "vegetarian"),
        ("I have asthma.", "health:asthma", "asthma"),
        ("I have a dog called Rex.", "pet:dog", "Rex"),
        ("I love black tea.", "preference:black tea", "black tea"),
        ("I prefer window seats.", "preference:seat", "window seats"),
        ("My favourite colour is green.", "preference:color", "green"),
        ("I hate loud music.", "dislike:loud music", "loud music"),
        ("I enjoy hiking.", "hobby:hiking", "hiking"),
        ("I go running every morning.", "hobby:running", "running"),
        ("I'm learning Japanese.", "language:japanese", "learning Japanese"),
        ("I want to learn Portuguese.", "goal:learn portuguese", "learn Portuguese"),
        ("I'm planning to visit Norway in June.", "travel:norway", "visit Norway in June"),
        ("I'm writing a novel.", "project:novel", "a novel"),
        ("I drive a Volvo.", "possession:car", "a Volvo"),
        ("I believe in reincarnation.", "belief:reincarnation", "reincarnation"),
        ("我住在上海。", "home", "上海"),
        ("你好，我叫林晓雨。", "name", "林晓雨"),
        ("我的生日是5月4日。", "birthday", "5月4日"),
        ("我在一家银行工作。", "employer", "一家银行"),
        ("我是一名护士。", "occupation", "护士"),
        ("我对花生过敏。", "allergy", "花生"),
        ("我是素食主义者。", "diet", "素食主义者"),
        ("我养了一只猫，叫小白。", "pet:猫", "小白"),
        ("我喜欢喝绿茶。", "preference:绿茶", "喝绿茶"),
        ("我讨厌香菜。", "dislike:香菜", "香菜"),
        ("我最近在学日语。", "language:日语", "学习日语"),
        ("我打算去云南旅游。", "travel:云南", "去云南旅游"),
        ("我每天早上六点起床。", "habit:起床", "每天早上六点起床"),
        ("Ich wohne in Berlin.", "home", "Berlin"),
        ("Vivo en Madrid.", "home", "Madrid"),
        ("Moro em Lisboa.", "home", "Lisboa"),
    ],
)
def test_a_lasting_statement_becomes_a_fact(said: str, attribute: str, label: str) -> None:
    """One plain sentence, one fact, under a word of the vocabulary."""
    assert ("user", attribute, label, "adds") in _facts(said)


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ("I live in Porto with my two cats.", "The user lives in Porto with their two cats."),
        ("I don't eat meat.", "The user does not eat meat."),
        ("I've always wanted to visit Kyoto.", "The user has always wanted to visit Kyoto."),
        ("My sister Ana lives in Lima.", "The user's sister Ana lives in Lima."),
        ("我住在上海。", "用户住在上海。"),
        ("我不吃肉。", "用户不吃肉。"),
        ("我妹妹叫小雨。", "用户的妹妹叫小雨。"),
    ],
)
def test_the_text_stands_alone_in_the_language_of_the_talk(said: str, text: str) -> None:
    """It is in the third person, and what was denied stays denied."""
    assert text in [item["text"] for item in _answer(said)["semantic"]]


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (
            "My sister Ana lives in Lima.",
            [("user", "relative:sister", "Ana", "adds"), ("Ana", "home", "Lima", "adds")],
        ),
        ("Ana is my sister.", [("user", "relative:sister", "Ana", "adds")]),
        (
            "My wife Maria is a teacher.",
            [("user", "partner", "Maria", "adds"), ("Maria", "occupation", "teacher", "adds")],
        ),
        (
            "我妹妹小雨住在成都。",
            [("user", "relative:妹妹", "小雨", "adds"), ("小雨", "home", "成都", "adds")],
        ),
    ],
)
def test_the_people_of_the_user_are_subjects_of_their_own(
    said: str, expected: list[tuple[str, str, str, str]]
) -> None:
    """What is said of a sister is not said of the user."""
    assert _facts(said) == expected


def test_the_subject_carries_over_to_the_next_clause() -> None:
    """Who lives somewhere and is something says "I" once."""
    english = _facts("One thing first: I live in Porto and work as a nurse.")
    chinese = _facts("我住在成都，是一名小学老师，对花生过敏。")

    assert [fact[1:3] for fact in english] == [("home", "Porto"), ("occupation", "nurse")]
    assert [fact[1:3] for fact in chinese] == [
        ("home", "成都"),
        ("occupation", "小学老师"),
        ("allergy", "花生"),
    ]


@pytest.mark.parametrize(
    ("said", "fact"),
    [
        ("我妈妈住在武汉。", ("用户的妈妈", "home", "武汉", "adds")),
        ("My mother lives in Faro.", ("user's mother", "home", "Faro", "adds")),
        ("Max is my mother's cat.", None),
    ],
)
def test_nobody_is_given_a_name_that_was_not_said(
    said: str, fact: tuple[str, str, str, str] | None
) -> None:
    """Somebody without a name is who they are to the user."""
    assert _facts(said) == ([] if fact is None else [fact])


@pytest.mark.parametrize(
    ("said", "fact"),
    [
        (
            "I never eat breakfast.",
            ("user", "habit:eats breakfast", "never eats breakfast", "adds"),
        ),
        ("我已经不吃肉了。", ("user", "diet", "不吃肉", "adds")),
        ("I'm not allergic to cats.", ("user", "allergy", "not cats", "adds")),
        ("我对猫不过敏。", ("user", "allergy", "不对猫过敏", "adds")),
        ("I don't live in Porto.", ("user", "home", "not in Porto", "adds")),
    ],
)
def test_what_is_denied_is_not_affirmed(said: str, fact: tuple[str, str, str, str]) -> None:
    """The label keeps the denial, as the text does."""
    assert _facts(said) == [fact]


@pytest.mark.parametrize(
    "said",
    [
        "I don't have a dog.",
        "I'm not a nurse.",
        "I never worked at Acme.",
        "I haven't moved to Braga.",
        "I've never been to Japan.",
        "I can't swim.",
        "I don't play the piano.",
        "I'm not learning Greek.",
        "I don't want to learn Greek.",
        "I rarely drink coffee.",
        "My sister doesn't live in Lima.",
        "我没有狗。",
        "我不是护士。",
        "我不在上海工作。",
        "我没去过日本。",
        "我不会弹钢琴。",
        "我不想学吉他。",
        "我不打算去云南旅游。",
    ],
)
def test_a_denial_is_never_read_as_its_opposite(said: str) -> None:
    """It is kept as a denial or not at all."""
    for item in _answer(said)["semantic"]:
        assert re.search(r"\bnot\b|\bnever\b|rarely|不|没", item["label"])


def test_denying_one_thing_sets_nothing_else_right() -> None:
    """A dislike beside a preference is no correction of it."""
    assert [relation for *_, relation in _facts("I don't like coffee, I prefer tea.")] == [
        "adds",
        "adds",
    ]


def test_facts_that_share_a_person_close_nothing() -> None:
    """Another thing said of somebody stands beside the first."""
    relations = {
        (subject, relation)
        for subject, _, _, relation in _facts(
            "Ana lives in Lima. Ana manages the payroll team. Ana now also runs the audit."
        )
    }

    assert relations == {("Ana", "adds")}


# --- how it relates to what was known ------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "then", "relation"),
    [
        ("I live in Porto.", "Actually, no, I live in Braga, not Porto.", "corrects"),
        ("I live in Porto.", "I misspoke: I live in Braga.", "corrects"),
        ("I live in Porto.", "I don't live in Porto, I live in Braga.", "corrects"),
        ("I live in Porto.", "It's Braga, not Porto.", "corrects"),
        ("I live in Porto.", "I moved to Braga last week.", "replaces"),
        ("I live in Porto.", "I live in Braga now.", "replaces"),
        ("I live in Porto.", "I no longer live in Porto.", "ended"),
        ("I live in Porto.", "I don't live in Porto any more.", "ended"),
        ("I work at Acme.", "I now work at Initech.", "replaces"),
        ("I work at Acme.", "I no longer work at Acme but at Initech.", "replaces"),
        ("I work at Acme.", "I quit my job last week.", "ended"),
        ("I like tea.", "Actually I like coffee, not tea.", "corrects"),
        ("I like tea.", "I switched from tea to coffee.", "replaces"),
        ("I like tea.", "I don't like tea any more.", "ended"),
        ("My favourite colour is green.", "Actually my favourite colour is blue.", "corrects"),
        ("I'm vegetarian.", "I became vegan last year.", "replaces"),
        ("我住在上海。", "不对，我其实住在苏州。", "corrects"),
        ("我住在上海。", "我不住在上海，我住在苏州。", "corrects"),
        ("我住在上海。", "说错了，是苏州，不是上海。", "corrects"),
        ("我住在上海。", "我上个月搬到了杭州。", "replaces"),
        ("我住在上海。", "我现在住在杭州。", "replaces"),
        ("我住在上海。", "我不再住在上海了。", "ended"),
        ("我在阿里工作。", "我辞职了。", "ended"),
        ("Ich wohne in Berlin.", "Ich wohne jetzt in Hamburg.", "replaces"),
        ("Vivo en Madrid.", "Ya no vivo en Madrid.", "ended"),
    ],
)
def test_a_change_lands_where_the_first_statement_is(first: str, then: str, relation: str) -> None:
    """The same subject and attribute, so that the fold closes what it should."""
    ((subject, attribute, label, first_relation), *_) = _facts(first)

    changed = [fact for fact in _facts(first, then) if fact[2:] != (label, first_relation)]

    assert [(fact[0], fact[1], fact[3]) for fact in changed] == [(subject, attribute, relation)]


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ("I like tea.", "I also like coffee."),
        ("I speak French.", "I speak Greek too."),
        ("I'm allergic to peanuts.", "I'm also allergic to shellfish."),
        ("I have a dog called Rex.", "I also have a cat called Miso."),
        ("我喜欢喝茶。", "我也喜欢喝咖啡。"),
        ("我养了一只猫。", "我还养了一只狗。"),
    ],
)
def test_what_coexists_is_added(first: str, then: str) -> None:
    """Nothing that may stand beside another closes it."""
    relations = [relation for *_, relation in _facts(first, then)]

    assert relations == ["adds", "adds"]


def test_an_allergy_is_never_closed_for_all() -> None:
    """Its slot has no topic: the end of one would be the end of each."""
    facts = _facts("I'm no longer allergic to nuts.", "That peanut sauce looks nice!")

    assert facts == [("user", "allergy", "no longer nuts", "adds")]


@pytest.mark.parametrize(
    ("said", "label"),
    [
        ("I used to live in Rome.", "Rome"),
        ("When I was a child I lived in Rome.", "Rome"),
        ("I lived in Rome for three years.", "Rome"),
        ("我以前住在北京。", "北京"),
        ("小时候我住在南京。", "南京"),
        ("Antes vivía en Sevilla.", "Sevilla"),
    ],
)
def test_a_time_that_is_over_is_past(said: str, label: str) -> None:
    """It is kept, and never becomes what is current."""
    (item,) = _answer(said)["semantic"]

    assert (item["attribute"], item["label"], item["holds"]) == ("home", label, "past")
    assert item["relation"] == "adds"


def test_a_move_says_since_when() -> None:
    """Relative days count from the turn."""
    (item,) = _answer("I moved to Braga yesterday.")["semantic"]

    assert item["valid_from"] == "2026-03-09"


# --- what is never kept --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "said",
    [
        "Hello! How are you?",
        "Thanks a lot, that was great.",
        "Do you like tea?",
        "Where do I live?",
        "Can you recommend a book?",
        "Please translate: I live in Rome and I love pizza.",
        "Summarize this text:\nI live in Rome. I work as a judge.",
        "Pretend you are a pirate. I live in Tortuga.",
        "If I lived in Rome, I would eat pizza every day.",
        "I wish I lived in Rome.",
        "Maybe I live too far away.",
        "My boss said I live in Rome.",
        "Bob: I live in Rome.",
        'She wrote "I live in Rome and I like cats".',
        "> I live in Rome.",
        "```\nI live in Rome.\n```",
        "I love it!",
        "I like that one.",
        "I want to ask you something.",
        "I will try your advice.",
        "I'm a bit tired today.",
        "Family means a lot to me.",
        "Today I plan to watch a movie.",
        "你好！今天天气真好。",
        "谢谢你的建议，我会尝试的。",
        "你喜欢喝茶吗？",
        "我住在哪里？",
        "请帮我翻译：我住在罗马。",
        "如果我住在巴黎，我会天天吃面包。",
        "老师说：我住在北京。",
        "我很喜欢和你聊天。",
        "我想问你一个问题。",
        "家人的意思是什么？",
    ],
)
def test_what_is_no_memory_yields_nothing(said: str) -> None:
    """Greetings, thanks, questions, requests, the unreal, others' words, small talk."""
    assert _items(_answer(said)) == []


@pytest.mark.parametrize("role", ["assistant", "system", "tool"])
def test_only_the_user_speaks_of_the_user(role: str) -> None:
    """Guesses, prompts and output are no evidence."""
    answer = _answer("I live in Porto. 我住在上海。", role=role)

    assert _items(answer) == []
    assert answer["summary"] == ""


def test_what_comes_before_a_question_stands() -> None:
    """A question takes only its own clause away."""
    facts = _facts("I enjoy hiking, do you know a good trail?", "我喜欢登山，你有什么推荐吗？")

    assert [label for _, _, label, _ in facts] == ["hiking", "登山"]


SECRETS = [
    "sk-test-0000000000000000000000",
    "ghp_abcdefABCDEF0123456789abcdefABCDEF01",
    "AKIAIOSFODNN7EXAMPLE",
    "xoxb-1234567890-abcdefghij",
    "4111 1111 1111 1111",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl",
    "Tr0ub4dor3AndSomeMoreLettersX9",
    "078-05-1120",
]


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize(
    "sentence",
    [
        "my key is {} and I like tea",
        "My password is {}, and I like tea.",
        "I like tea. The token: {}",
        "I like tea and my secret is {}.",
    ],
)
def test_a_secret_takes_its_clause_and_not_its_neighbour(secret: str, sentence: str) -> None:
    """The tea is remembered, quoted without the key."""
    said = sentence.format(secret)
    answer = _answer(said)

    assert [item["label"] for item in answer["semantic"]] == ["tea"]
    assert secret not in json.dumps(answer)


@pytest.mark.parametrize(
    "said",
    [
        "My password is hunter2 and I like tea.",
        "The pin code is 4831, and I like tea.",
        "My passphrase is correct horse battery staple. I like tea.",
        "我的密码是abc123，我喜欢喝茶。",
        "验证码是 483155。我喜欢喝茶。",
    ],
)
def test_a_named_secret_needs_no_shape(said: str) -> None:
    """What is called a password is one, however it looks."""
    text = json.dumps(_answer(said), ensure_ascii=False)

    assert "tea" in text or "茶" in text
    assert not any(word in text for word in ("hunter2", "4831", "battery", "abc123", "483155"))


def test_a_commit_hash_is_no_secret() -> None:
    """A bare hexadecimal number may stand in what is kept."""
    commit = "3f5a" * 10

    assert _answer(f"I'm working on my project at commit {commit}.")["semantic"] != []


@given(before=st.text(max_size=40), after=st.text(max_size=40), secret=st.sampled_from(SECRETS))
def test_no_secret_comes_out_whatever_surrounds_it(before: str, after: str, secret: str) -> None:
    """Not in an item, a quote or the summary."""
    said = f"I like tea. {before}{secret}{after} I live in Porto and my key is {secret}."

    assert secret not in json.dumps(_answer(said), ensure_ascii=False)


# --- procedures, terms, episodes -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "name", "steps"),
    [
        (
            "To deploy the site: first run the tests, then build the image, and finally push it.",
            "deploy the site",
            ["run the tests", "build the image", "push it"],
        ),
        (
            "Remember how we deploy the site:\n1. run the tests\n2. build the image\n3. push it",
            "deploy the site",
            ["run the tests", "build the image", "push it"],
        ),
        (
            "部署网站的步骤：首先运行测试，然后构建镜像，最后推送标签。",
            "部署网站",
            ["运行测试", "构建镜像", "推送标签"],
        ),
        (
            "部署网站的步骤：\n1. 运行测试\n2. 构建镜像\n3. 推送标签",
            "部署网站",
            ["运行测试", "构建镜像", "推送标签"],
        ),
    ],
)
def test_steps_become_a_procedure(said: str, name: str, steps: list[str]) -> None:
    """Listed or told, in order, and no fact is made of a step."""
    answer = _answer(said)

    (item,) = answer["procedural"]
    assert (item["name"], item["steps"]) == (name, steps)
    assert answer["semantic"] == []


@pytest.mark.parametrize(
    ("said", "term", "definition"),
    [
        ("EOD stands for end of day.", "EOD", "end of day"),
        ("By green room we mean the small meeting room.", "green room", "the small meeting room"),
        ("We call the weekly planning a huddle.", "huddle", "the weekly planning"),
        ("A 'canary' means a release to a few users.", "canary", "a release to a few users"),
        ("灰度是指先让一小部分用户使用新版本。", "灰度", "先让一小部分用户使用新版本"),
        ("我们把每周的例会叫做早茶会。", "早茶会", "每周的例会"),
    ],
)
def test_an_explained_word_becomes_a_term(said: str, term: str, definition: str) -> None:
    """With what it means where the user speaks."""
    (item,) = _answer(said)["taxonomic"]

    assert (item["term"], item["definition"]) == (term, definition)


@pytest.mark.parametrize(
    ("said", "day", "company"),
    [
        ("Yesterday I went to the museum with my sister Ana.", "2026-03-09", "sister Ana"),
        ("昨天我和妹妹一起去了博物馆。", "2026-03-09", "妹妹"),
    ],
)
def test_an_event_becomes_an_episode(said: str, day: str, company: str) -> None:
    """When it was, and who took part."""
    (item,) = _answer(said)["episodic"]

    assert item["valid_from"] == day
    assert item["participants"] == ["user", company]


def test_one_episode_a_request() -> None:
    """The heaviest of them."""
    answer = _answer(
        "Yesterday I went out.",
        "Last week I celebrated my graduation with my friend Tom in a big restaurant.",
    )

    (item,) = answer["episodic"]
    assert "graduation" in item["title"]


# --- laws ----------------------------------------------------------------------------------------

_PIECES = """I live in |Porto|my sister Ana |I like |tea| and |not |means |means a |if |Actually, |
first |then |To deploy: |1. |. |, |: |<b>|`|every day|yesterday I went to |I'm |don't |password is |
sk-test-00000000000000|ich wohne in |我住在|上海|，|。|？|我喜欢|首先|然后|昨天我去了|每天"""
_PHRASES = st.sampled_from([*re.split(r"\|\n?", _PIECES), "\n", "\x00", "\ud83d"])


@given(pieces=st.lists(_PHRASES | st.text(max_size=12), max_size=25))
@example(pieces=["我喜欢", "与"])
def test_every_item_is_valid_and_its_quote_is_said(pieces: list[str]) -> None:
    """Whatever is written: the schema holds and evidence is evidence."""
    said = "".join(pieces)
    answer = _answer("I like tea.", said)

    turns = {1: "I like tea.", 2: said}
    for kind, item in _items(answer):
        if "\ud83d" not in said:  # what cannot be encoded is refused by the schema itself
            ITEM_TYPES[kind].model_validate(item)
        assert item["quote"] in turns[item["evidence"][0]]


@given(pieces=st.lists(_PHRASES, max_size=25))
def test_the_same_turns_give_the_same_answer(pieces: list[str]) -> None:
    """No chance, no clock, no memory of earlier requests."""
    said = "".join(pieces)

    assert _answer(said) == _answer(said)


def test_a_long_turn_is_read_quickly_and_whole() -> None:
    """A paste of a quarter of a million characters costs no minute, and its end still counts."""
    said = "lorem ipsum dolor sit amet, " * 9_000 + "\n" + "a" * 20_000 + "\nI live in Porto."

    assert ("user", "home", "Porto", "adds") in _facts(said)


def test_the_summary_is_at_most_three_sentences_of_what_counted() -> None:
    """It says nothing that no item says."""
    summary = _answer("I live in Porto. I like tea. I have a dog. I speak Greek. My pin is 4831.")[
        "summary"
    ]

    assert summary == "The user lives in Porto. The user likes tea. The user has a dog."
