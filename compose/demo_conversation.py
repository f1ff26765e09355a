"""The conversation of the demo: three sessions, two people, two languages.

It holds one of each thing memory has to get right: a home that is corrected a week later, tastes
that stand side by side, a way of doing something, a word explained, an event, small talk that is
worth nothing, and a key that must never be remembered. With a seed the people, places, tastes and
the order of what is independent change, so that nothing can be fitted to the shipped text.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

Role = Literal["user", "assistant"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoTurn:
    """One turn, as an agent would record it."""

    session_id: str
    """The conversation it belongs to."""
    user_id: str
    """Whose conversation it is."""
    role: Role
    """Who speaks."""
    content: str
    """What is said."""
    created_at: datetime
    """When it was said, always in the past."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoTruth:
    """What the memory of the conversation has to show."""

    english_user_id: str
    """Who speaks English, in two sessions."""
    chinese_user_id: str
    """Who speaks Chinese, in one."""
    corrected_from: str
    """The home the English speaker names first."""
    corrected_to: str
    """The home that is right."""
    liked: tuple[str, str]
    """Two drinks the English speaker likes, the second said in the later session."""
    chinese_home: str
    """Where the Chinese speaker lives."""
    chinese_liked: tuple[str, str]
    """Two drinks the Chinese speaker likes."""
    procedure: str
    """What the English speaker explains how to do."""
    term: str
    """The word the English speaker explains."""
    secret: str
    """The key that must be in nothing that is remembered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cast:
    """The words that change with the seed."""

    name: str = "Maya"
    sister: str = "Ines"
    dog: str = "Biscuit"
    old_city: str = "Porto"
    new_city: str = "Braga"
    sister_city: str = "Lyon"
    job: str = "veterinarian"
    first_drink: str = "green tea"
    second_drink: str = "espresso"
    allergen: str = "peanuts"
    trip: str = "Norway"
    term: str = "GSR"
    meaning: str = "green-slot review, the short check before the clinic opens"
    secret: str = "sk-test-4f9d0c27b81e4a6d93aa5e60"  # noqa: S105 - made up, and the point of it
    chinese_name: str = "林晓雨"
    chinese_sister: str = "小雪"
    chinese_home: str = "成都"
    chinese_origin: str = "南京"
    chinese_job: str = "小学老师"
    chinese_first_drink: str = "乌龙茶"
    chinese_second_drink: str = "豆浆"
    chinese_allergen: str = "芒果"
    chinese_trip: str = "敦煌"


_NAMES = ("Maya", "Elena", "Noor", "Freya", "Tessa", "Amara", "Greta", "Leila")
_SISTERS = ("Ines", "Paula", "Ronja", "Dana", "Yara", "Sofia", "Klara", "Mina")
_DOGS = ("Biscuit", "Rolo", "Pepper", "Moss", "Juno", "Waffle")
_CITIES = (
    "Porto", "Braga", "Ghent", "Turin", "Graz", "Malmö", "Leeds", "Bergen", "Nantes", "Kraków",
    "San Sebastián", "New Haven",
)  # fmt: skip
_JOBS = ("veterinarian", "nurse", "carpenter", "software engineer", "florist", "translator")
_DRINKS = ("green tea", "espresso", "apple juice", "ginger beer", "cocoa", "mint tea", "kombucha")
_ALLERGENS = ("peanuts", "shellfish", "sesame", "penicillin", "walnuts")
_TRIPS = ("Norway", "Iceland", "Japan", "Peru", "Scotland", "Morocco")
_TERMS = (
    ("GSR", "green-slot review, the short check before the clinic opens"),
    ("TLC", "the long checklist"),
    ("QDR", "quiet desk rotation"),
    ("FPO", "first patient of the day"),
)
_CHINESE_NAMES = ("林晓雨", "陈子涵", "王思远", "赵雅宁", "周若溪")
_CHINESE_SISTERS = ("小雪", "晓晴", "雨桐", "佳怡")
_CHINESE_CITIES = ("成都", "南京", "西安", "青岛", "厦门", "昆明", "长沙")
_CHINESE_JOBS = ("小学老师", "护士", "工程师", "平面设计师", "会计")
_CHINESE_DRINKS = ("乌龙茶", "豆浆", "酸梅汤", "普洱茶", "柠檬水", "热可可")
_CHINESE_ALLERGENS = ("芒果", "花生", "海鲜", "青霉素")
_CHINESE_TRIPS = ("敦煌", "大理", "拉萨", "桂林")

_STARTS = {
    "first": datetime(2026, 3, 2, 18, 5, tzinfo=UTC),
    "later": datetime(2026, 3, 9, 19, 30, tzinfo=UTC),
    "chinese": datetime(2026, 3, 11, 12, 10, tzinfo=UTC),
}
_BETWEEN_TURNS = timedelta(seconds=40)

Passage = Sequence[str]
"""What the user says, and what the assistant answers, in turn."""


def demo_turns(seed: int | None = None) -> list[DemoTurn]:
    """Return the conversation, in order of time.

    Args:
        seed: Changes who speaks, of what, and in which order; `None` is the shipped text.
    """
    cast = _cast(seed)
    dice = None if seed is None else random.Random(seed)  # noqa: S311 - a variation, no secret
    english, chinese = _user_ids(cast)
    turns: list[DemoTurn] = []
    for session, user_id, opening, passages, closing in (
        ("first", english, _FIRST_OPENING, _FIRST, _FIRST_CLOSING),
        ("later", english, _LATER_OPENING, _LATER, _LATER_CLOSING),
        ("chinese", chinese, _CHINESE_OPENING, _CHINESE, _CHINESE_CLOSING),
    ):
        middle = list(passages)
        if dice is not None:
            dice.shuffle(middle)
        said = [line for passage in (opening, *middle, closing) for line in passage]
        turns.extend(
            DemoTurn(
                session_id=f"demo-{session}",
                user_id=user_id,
                role="assistant" if number % 2 else "user",
                content=_filled(line, cast),
                created_at=_STARTS[session] + number * _BETWEEN_TURNS,
            )
            for number, line in enumerate(said)
        )
    return turns


def demo_truth(seed: int | None = None) -> DemoTruth:
    """Return what memory has to show after `demo_turns(seed)`."""
    cast = _cast(seed)
    english, chinese = _user_ids(cast)
    return DemoTruth(
        english_user_id=english,
        chinese_user_id=chinese,
        corrected_from=cast.old_city,
        corrected_to=cast.new_city,
        liked=(cast.first_drink, cast.second_drink),
        chinese_home=cast.chinese_home,
        chinese_liked=(cast.chinese_first_drink, cast.chinese_second_drink),
        procedure="close the clinic",
        term=cast.term,
        secret=cast.secret,
    )


def _user_ids(cast: _Cast) -> tuple[str, str]:
    return cast.name.lower(), "xiaoyu" if cast.chinese_name == "林晓雨" else "chinese-speaker"


def _filled(line: str, cast: _Cast) -> str:
    text = line
    for name in _Cast.__slots__:
        text = text.replace(f"<{name}>", str(getattr(cast, name)))
    return text


def _cast(seed: int | None) -> _Cast:
    if seed is None:
        return _Cast()
    dice = random.Random(seed)  # noqa: S311 - a variation, no secret
    old_city, new_city, sister_city = dice.sample(_CITIES, 3)
    first_drink, second_drink = dice.sample(_DRINKS, 2)
    term, meaning = dice.choice(_TERMS)
    chinese_home, chinese_origin = dice.sample(_CHINESE_CITIES, 2)
    chinese_first_drink, chinese_second_drink = dice.sample(_CHINESE_DRINKS, 2)
    return _Cast(
        name=dice.choice(_NAMES),
        sister=dice.choice(_SISTERS),
        dog=dice.choice(_DOGS),
        old_city=old_city,
        new_city=new_city,
        sister_city=sister_city,
        job=dice.choice(_JOBS),
        first_drink=first_drink,
        second_drink=second_drink,
        allergen=dice.choice(_ALLERGENS),
        trip=dice.choice(_TRIPS),
        term=term,
        meaning=meaning,
        secret=f"sk-test-{dice.getrandbits(96):024x}",
        chinese_name=dice.choice(_CHINESE_NAMES),
        chinese_sister=dice.choice(_CHINESE_SISTERS),
        chinese_home=chinese_home,
        chinese_origin=chinese_origin,
        chinese_job=dice.choice(_CHINESE_JOBS),
        chinese_first_drink=chinese_first_drink,
        chinese_second_drink=chinese_second_drink,
        chinese_allergen=dice.choice(_CHINESE_ALLERGENS),
        chinese_trip=dice.choice(_CHINESE_TRIPS),
    )


# --- what is said --------------------------------------------------------------------------------

_FIRST_OPENING: Passage = (
    "Hi there! I'm <name>, we haven't talked before.",
    "Nice to meet you, <name>! What's on your mind this evening?",
    "Mostly setting things up. I live in <old_city> and I work as a <job>.",
    "Thanks, that helps. Is there anything you'd like me to keep in mind while we work?",
)
_FIRST: Sequence[Passage] = (
    (
        "I like <first_drink>, so feel free to suggest places that do it well.",
        "Happy to. Do you prefer somewhere quiet, or somewhere with a bit of life?",
        "Quiet, please. What a week it has been!",
        "Quiet it is. I'd look for a small place away from the main street.",
    ),
    (
        "One important thing: I'm allergic to <allergen>.",
        "Understood, I'll leave that out of every recipe I suggest.",
    ),
    (
        "My sister <sister> lives in <sister_city>. We talk nearly every Sunday.",
        "That sounds like a good ritual. Is she older or younger than you?",
        "Younger, and much louder, haha.",
        "Younger sisters often are. I'd love to hear a story about her one day.",
    ),
    (
        "To close the clinic: first check the fridge temperatures, then lock the medicine cabinet,"
        " and finally set the alarm.",
        "Got it: fridge, cabinet, alarm. Shall I turn that into a printable checklist?",
        "Not tonight, thanks.",
        "No problem, just say the word.",
    ),
    (
        "By the way, <term> stands for <meaning>. People at work say it all the time.",
        "Good to know, I would never have guessed that one.",
    ),
    (
        "Could you check why my script gets a 401? My API key is <secret>. The docs are no help.",
        "A 401 usually means the header is missing or the key has expired. Please don't share keys"
        " in a chat, though: it's safer to rotate that one now.",
        "Oh, you're right. I'll rotate it.",
        "Good. Afterwards, read it from an environment variable instead of the source.",
    ),
    (
        "If I lived in Tokyo, I would probably spend everything on stationery.",
        "You wouldn't be the first. The pens alone are a reason to bring a second suitcase.",
    ),
    (
        "How warm does it get here in August, do you know?",
        "It depends on the year, but afternoons near thirty degrees are common.",
    ),
)
_FIRST_CLOSING: Passage = (
    "Thank you, that was helpful. Good night!",
    "Good night, <name>. Talk soon!",
)

_LATER_OPENING: Passage = (
    "Hello again!",
    "Welcome back, <name>! How was your week?",
)
_LATER: Sequence[Passage] = (
    (
        "Actually, I misspoke last week: I live in <new_city>, not <old_city>.",
        "Thanks for telling me, I'll go by <new_city> from now on.",
        "Great.",
        "Anything else I should have straight?",
    ),
    (
        "I also like <second_drink>, especially on slow mornings.",
        "A good choice for a slow morning. Do you make it at home?",
        "Sometimes, if the machine is in the mood.",
        "They do have moods. Descaling helps more often than people think.",
    ),
    (
        "I have a dog called <dog>.",
        "<dog> is a wonderful name! How long have you had each other?",
        "Three years in May, can you believe it?",
        "Time flies with a good dog.",
    ),
    (
        "Yesterday I went to the botanical garden with my sister <sister>.",
        "Lovely. Was anything in bloom yet?",
        "The magnolias, everywhere.",
        "March is their month. I hope you took pictures.",
    ),
    (
        "I'm planning to visit <trip> in September.",
        "September is a fine time for it. Shall I look into how to get around there?",
        "Later, yes please.",
        "I'll be here.",
    ),
    (
        'Please translate into French: "We are closed on Monday."',
        "« Nous sommes fermés le lundi. »",
    ),
    (
        "My boss said I live in the office. Very funny.",
        "Sounds like somebody should go home on time today.",
    ),
    (
        "I don't eat meat, so keep that in mind for dinner ideas.",
        "Noted. How about a chickpea stew with roasted peppers?",
    ),
    (
        "What do you think of the new tram line?",
        "I can't ride it myself, but people seem to like that it runs late.",
    ),
)
_LATER_CLOSING: Passage = (
    "That's all for today, thanks!",
    "You're welcome, <name>. Enjoy the evening!",
)

_CHINESE_OPENING: Passage = (
    "你好，我叫<chinese_name>，第一次用这个助手。",
    "你好，<chinese_name>！很高兴认识你，有什么可以帮你的吗？",
    "我住在<chinese_home>，是一名<chinese_job>。",
    "好的，我记下了。平时工作忙吗？",
)
_CHINESE: Sequence[Passage] = (
    (
        "我喜欢喝<chinese_first_drink>。",
        "很不错的选择。你一般什么时候喝呢？",
        "下午吧，一边喝一边发呆，哈哈。",
        "偶尔发呆对脑子也有好处。",
    ),
    (
        "我也喜欢喝<chinese_second_drink>。",
        "<chinese_second_drink>也很好，天气热的时候尤其舒服。",
    ),
    (
        "我妹妹叫<chinese_sister>，今年刚上大学。",
        "恭喜她！她学的是什么专业？",
        "还没定呢，先上基础课。",
        "慢慢来，先多接触一些再决定也不迟。",
    ),
    (
        "对了，我对<chinese_allergen>过敏。",
        "明白，推荐吃的时候我会避开它。",
    ),
    (
        "我以前住在<chinese_origin>。",
        "那也是个好地方。有没有特别怀念的东西？",
        "怀念那里的早餐摊。",
        "早餐摊的味道确实很难代替。",
    ),
    (
        "准备家长会的步骤：首先整理成绩单，然后打印座位表，最后布置教室。",
        "步骤很清楚：成绩单、座位表、教室。需要我提醒你吗？",
        "暂时不用，谢谢。",
        "好的，需要的时候随时告诉我。",
    ),
    (
        "我打算去<chinese_trip>旅游。",
        "听起来很棒！需要我帮你列一个行李清单吗？",
    ),
    (
        "今天天气真好啊！",
        "是啊，适合出门走走。",
    ),
    (
        "你觉得周末看电影好还是爬山好？",
        "如果天气好，我会选爬山；下雨的话，电影更合适。",
    ),
    (
        "如果我住在海边，我每天都会去游泳。",
        "海边的生活确实让人向往。",
    ),
)
_CHINESE_CLOSING: Passage = (
    "好的，谢谢你，下次再聊！",
    "不客气，下次见！",
)
