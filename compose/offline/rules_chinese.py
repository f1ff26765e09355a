"""What a Chinese sentence states of the user, or of somebody the user names.

A clause counts when it begins with its subject (我, 我妹妹, 我妹妹小雨), or goes on from one that does.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from compose.offline.rules_dates import day_of
from compose.offline.rules_items import USER, Fact, Stated
from compose.offline.rules_text import BARRED, Clause, Sentence, quoted_spans, split
from schemas.memory import Relation

# ruff: noqa: E501 - a rule is one line of a table, and the width of its characters is counted twice

_BOUNDARY = re.compile(
    r"[，,；;：:](?!(?:它|名字|名)*(?:就|是)?叫)|——|(?:但是?|不过|而且|所以|因为|可是)(?=我|也|还|现在)"
)
_LEADING = re.compile(
    r"""(?x)
    (?: 你好[啊呀]? | 您好 | 嗨 | 嘿 | 哈喽 | 早上好 | 晚上好 | 下午好 | 好的? | 嗯+ | 恩 | 哦 | 哈+ | 是的 | [是对](?=[，,！]) | 对[的了啊呀]
      | 是啊 | 对啊 | 没错 | 当然(?:了|啦)? | 其实 | 另外 | 还有(?=[，,]) | 而且 | 但是? | 不过 | 所以 | 因为 | 因此 | 那么 | 然后
      | 顺便(?:说一下|一提)? | 说实话 | 老实说 | 对了 | 话说 | 谢谢(?:你)? | 朋友 | AI伴侣 | 请?记住 | 记一下 | 请?记得
      | 不对(?=[，,！。]|我) | 不是(?=[，,]|我) | 说错了 | 更正(?:一下)? | 我说错了 | 我记错了 | 我是说 | 抱歉 | 不好意思 | 最近 | 目前 | 现在
      | 如今 | 平时 | 平常 | 今年 | 这几年 | 从小 | 一直 | 除了[^，,]{1,15}(?:之外|以外) | 闲暇时 | 业余时间 | 周末 | 以前
      | 曾经 | 小时候 | 上个?月 | 去年 | 上周 | 从今以后 | 告诉你 | 事实上 | 哇+ | 哎呀? | 啊 | 唉 | 哎
    ) [，,。！!、：:\s]* (?=\S)
    """
)
_UNREAL = re.compile(
    r"如果|假如|要是|假设|倘若|万一|的话|要不是|可能会|也许|或许|大概|说不定|好像|似乎|开玩笑|梦里|梦见"
)
_ASKING = re.compile(
    r"吗|什么|怎么|怎样|哪|谁|多少|为什么|如何|是否|能不能|有没有|是不是|可不可以|要不要|会不会|好不好|几[个时点]"
)
_PASSING = re.compile(r"请你|帮我|麻烦你|能帮|给我(?:推荐|介绍|讲|说)|告诉我|推荐一")
_REPORTED = re.compile(
    r"(?:[他她它]们?|朋友|同事|老师|妈妈?|爸爸?|医生|老板|小说|书|电影)[^，,。]{0,6}(?:说|告诉我|问|觉得|认为|写道)[：:，,]?$"
)
_CORRECTING = re.compile(r"不对|其实|说错|记错|更正|我是说|应该是|搞错|弄错|口误|打错")
_COEXISTING = re.compile(r"[也还]|另外|同时|除了")
_TURNED = re.compile(r"现在|如今|目前改|改成|改为|换成|换到|变成|今后|开始改")
_TODAY = re.compile(r"今[天晚早]|待会|一会儿|等下|现在|马上|明天见")
_OVER = re.compile(r"不再|已经不|早就不|不(?P<verb>.{1,12})了(?:$|[，。！])|戒了|戒掉")
_PAST = re.compile(
    r"以前|曾经?(?!经济)|过去|小时候|从前|当年|年轻时|上学时|原来(?!是)|之前(?!提|说|聊)"
)
_STILL = re.compile(r"现在|一直|至今|从小就|还是")

_KIN = (
    r"(?:妹妹|姐姐|哥哥|弟弟|妈妈|母亲|爸爸|父亲|儿子|女儿|奶奶|爷爷|外婆|外公|姥姥|姥爷|阿姨|姨妈|姑姑|叔叔|舅舅"
    r"|伯伯|表[姐妹哥弟]|堂[姐妹哥弟]|侄[子女]|外甥女?|孙子|孙女|婆婆|公公|岳父|岳母)"
)
_PARTNER = r"(?:妻子|老婆|太太|丈夫|老公|先生|女朋友|男朋友|未婚妻|未婚夫|爱人|女友|男友|伴侣)"
_KNOWN = r"(?:朋友|好朋友|同事|老板|领导|经理|室友|邻居|同学|老师|闺蜜|导师|教练|房东)"
_PERSON = re.compile(
    rf"^我的?(?:一个|一位)?(?P<kin>{_KIN}|{_PARTNER}|{_KNOWN})(?P<name>(?![住在是喜爱会养有搬从叫讨不吃来现目也还已平一最很非特刚对今昨])[\u4e00-\u9fff]{{1,4}}?|[A-Z][a-z]+)?"
    r"(?=(?:现在|目前|也|还|已经|平时|一直|最近|很|非常|特别|不)*(?:住在?|在|是|喜欢|爱|不喜欢|对|会|养|有|搬|从事|叫|讨厌|今年|不吃|吃素|来自|刚))"
)
_I = re.compile(
    r"^(?:我们?一?家?人?|我和我?的?(?:家人|妻子|老婆|丈夫|老公))(?!的|觉得你|想问|想请|想听|想知道|想和你|想跟你)"
)
_ADVERB = (
    r"(?:现在|目前|最近|平时|平常|一直|一向|真的|特别|非常|十分|很|比较|挺|最|更|超级?|都|其实|已经|从小|从小就|主要|尤其"
    r"|通常|一般|基本上|有时候?|有时|刚刚?|正|就|始终|确实|的确|本来|个人|还是|也|还|又|今年|如今|以前|曾经?|过去|小时候"
    r"|之前|原来|上周|上个月|去年|今天|自己|早就|仍然|依然|蛮|不再|倒是|只)*"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Draft:
    attribute: str
    label: str
    is_sole: bool = False
    relation: Relation | None = None
    text: str | None = None


_Maker = Callable[[re.Match[str]], Iterator[_Draft]]

_VALUE_END = re.compile(
    r"[，,。！!；;？?（(]|了$|的时候|之类|什么的|等等?(?:$|(?=[，。]))|来(?:放松|缓解|打发)|因为|但是|不过|所以|而且"
)
_POINTING = re.compile(
    r"^(?:里面|其中|让|把|被|[^，,]{0,6}[中里](?:的|传|面)|这|那|它|他|她|你|您|此|其|什么|和你|跟你|与你|和别人|自己|之前|以前|上述|一下|一些事|过了?|的|了|上了?这|上了?那|去(?:那|这)|到)"
    r"|你|您|这[个种些样里]|那[个种些样里边]|它|AI"
)
_LONGEST_VALUE = 40


def _value(raw: str) -> str:
    end = _VALUE_END.search(raw)
    text = raw if end is None else raw[: end.start()]
    text = re.sub(r"(?:了|呢|啊|呀|哦|吧|啦|的|们一起|多一点|多一些)$", "", text.strip())
    return text.strip(" 、~～")


def _is_worth(value: str) -> bool:
    return (
        0 < len(value) <= _LONGEST_VALUE
        and not _POINTING.search(value)
        and not _ASKING.search(value)
    )


def _topic(value: str) -> str:
    text = re.sub(r"^(?:去|看|听|吃|喝|玩|各种|一些|一本|一种|多|在[^的]{1,8}里?)+(?=.)", "", value)
    text = re.sub(r"^(?:读|做|打|弹|养|学习?)(?=.{2})", "", text)
    text = re.split(r"[、和与及跟]", text)[0]
    text = re.split(r"的(?=.{2})", text)[-1]
    return (text or value)[-8:]


_DOING = re.compile(r"写|做|画|拍|收藏|吃|喝|搭配|尝试|研究|参加|去|品尝|制作|种")


def _members(value: str) -> list[str]:
    parts = [part for part in re.split(r"、|以及|和(?=[^平])|及(?!时)|与", value) if part]
    if not parts:
        return []
    if re.match(r"在|用|从|对", value) or (
        _DOING.match(parts[0]) and not all(_DOING.match(part) for part in parts[1:])
    ):
        return [value]
    is_list = len(parts) > 1 and all(1 < len(part) <= 10 for part in parts)  # noqa: PLR2004
    has_tail = "的" in parts[-1] and "的" not in parts[0]
    return parts[:6] if is_list and not has_tail else [value]


def _sole(attribute: str, *, relation: Relation | None = None) -> _Maker:
    def make(match: re.Match[str]) -> Iterator[_Draft]:
        value = _value(match["x"])
        if _is_worth(value):
            yield _Draft(attribute=attribute, label=value, is_sole=True, relation=relation)

    return make


def _many(attribute: str, *, label: str = "{}") -> _Maker:
    def make(match: re.Match[str]) -> Iterator[_Draft]:
        value = _value(match["x"])
        if _is_worth(value):
            yield _Draft(attribute=attribute, label=label.format(value, **match.groupdict()))

    return make


def _by_topic(word: str, *, relation: Relation | None = None) -> _Maker:
    def make(match: re.Match[str]) -> Iterator[_Draft]:
        value = _value(match["x"])
        if _is_worth(value):
            yield _Draft(attribute=f"{word}:{_topic(value)}", label=value, relation=relation)

    return make


def _each(word: str, verb: str) -> _Maker:
    def make(match: re.Match[str]) -> Iterator[_Draft]:
        whole = _value(match["x"])
        members = _members(whole) if not _POINTING.search(whole) else []
        for member in members:
            if _is_worth(member):
                text = (
                    None
                    if len(members) == 1
                    else f"{match.groupdict().get('verb') or verb}{member}"
                )
                yield _Draft(attribute=f"{word}:{_topic(member)}", label=member, text=text)

    return make


def _fixed(attribute: str, label: str, *, relation: Relation | None = None) -> _Maker:
    def make(_match: re.Match[str]) -> Iterator[_Draft]:
        yield _Draft(attribute=attribute, label=label, is_sole=True, relation=relation)

    return make


def _favourite(match: re.Match[str]) -> Iterator[_Draft]:
    value, kind = _value(match["x"]), _topic(match["kind"])
    if _is_worth(value):
        yield _Draft(attribute=f"preference:{kind}", label=value, is_sole=True)


def _switched(match: re.Match[str]) -> Iterator[_Draft]:
    yield _Draft(
        attribute=f"preference:{_topic(match['old'])}",
        label=_value(match["x"]),
        is_sole=True,
        relation=Relation.REPLACES,
    )


def _learns(match: re.Match[str]) -> Iterator[_Draft]:
    value = _value(match["x"])
    language = re.match(_LANGUAGE, value)
    if language is not None:
        yield _Draft(attribute=f"language:{language.group()}", label=f"学习{language.group()}")
    elif _is_worth(value) and not re.match(
        r"到|会了|了|新|一门|一些|很多|更多|得|着|如何|怎|.*(?:时|技能|知识)$", value
    ):
        stripped = re.sub(r"^(?:习|着)?(?:一种|一门|弹|做|打|画|写)?(?=.{2})", "", value)
        yield _Draft(attribute=f"skill:{_topic(stripped)}", label=f"学习{value}")


def _speaks(match: re.Match[str]) -> Iterator[_Draft]:
    for language in re.findall(_LANGUAGE, match["x"]):
        yield _Draft(attribute=f"language:{language}", label=language)


def _kin_attribute(kin: str, name: str | None) -> str:
    if re.fullmatch(_PARTNER, kin):
        return "partner"
    return f"relation:{name or kin}" if re.fullmatch(_KNOWN, kin) else f"relative:{kin}"


def _relative(match: re.Match[str]) -> Iterator[_Draft]:
    kin = match["kin"]
    yield _Draft(attribute=_kin_attribute(kin, None), label=match["name"] or _value(match["x"]))


def _pet(match: re.Match[str]) -> Iterator[_Draft]:
    yield _Draft(attribute=f"pet:{match['pet'][-1]}", label=match["name"] or _value(match["x"]))


_HABIT_LEAD = re.compile(r"^(?:都|会|要|[\d一二三四五六七八九十]+点(?:半|钟)?|早上|晚上)+")
_NO_HABIT = re.compile(
    r"(?:会|都)?(?:赢|输|被|不|做不|找不|感到|觉得|想|是|有|没|在想|忘|不知道|听说|能|可以|遇到|感觉|喜欢|聊|陪)"
)


def _habit(match: re.Match[str]) -> Iterator[_Draft]:
    value = _value(match["x"])
    if _is_worth(value) and not _NO_HABIT.match(value):
        topic = _topic(_HABIT_LEAD.sub("", value)[:8])
        yield _Draft(attribute=f"habit:{topic}", label=match["when"] + value)


def _aim(word: str) -> _Maker:
    def make(match: re.Match[str]) -> Iterator[_Draft]:
        value = _value(match["x"])
        place = re.search(
            r"去(?P<place>[\u4e00-\u9fff]{2,6}?)(?:旅游|旅行|玩|度假|出差|看|游|徒步|留学)", value
        )
        idle = re.match(
            r"(?:试|尝试|考虑|问|请教|听|知道|聊|和你|跟你|看看|了解一下|多了解|说|谢|告诉|睡|吃(?:点|个|晚|午|早)|休息|做点|找点|出去|去(?:吃|散步|看电影|睡)|分享|先)",
            value,
        )
        if idle or not _is_worth(value) or len(value) < 2:  # noqa: PLR2004
            return
        attribute = f"travel:{place['place']}" if place is not None else f"{word}:{_topic(value)}"
        yield _Draft(attribute=attribute, label=value)

    return make


_LANGUAGE = r"(?:英|法|德|日|韩|俄|汉|葡萄牙|西班牙|意大利|阿拉伯|泰|越南|粤|拉丁|荷兰|土耳其|希腊)[语文]|普通话|中文|粤语|手语"
_JOB = (
    r"(?:老师|教师|护士|医生|工程师|程序员|设计师|律师|会计师?|厨师|司机|作家|记者|编辑|翻译|摄影师|画家|艺术家|音乐家"
    r"|歌手|演员|导演|经理|顾问|分析师|科学家|研究员|教授|讲师|图书管理员|木匠|电工|农民|园丁|消防员|警察|军人|秘书|助理"
    r"|销售员?|收银员|企业家|创始人|自由职业者|技术员|药剂师|教练|理发师|裁缝|导游|银行职员|公务员|实习生|法官|产品经理|架构师"
    r"|建筑师|心理咨询师|健身教练|运营|人事|行政|插画师|兽医|牙医|家庭主妇|全职妈妈|全职爸爸|店长|老板|商人)"
)
_CONDITION = (
    r"(?:哮喘|糖尿病|高血压|关节炎|偏头痛|失眠症?|抑郁症|焦虑症|过敏性鼻炎|鼻炎|胃病|胃炎|心脏病|颈椎病|腰椎间盘突出|湿疹"
    r"|贫血|近视|色盲|癫痫|甲亢|甲减|痛风|乙肝|肩周炎|腰痛|季节性过敏|乳糖不耐受?)"
)
_COUNT = r"(?:一|两|二|三|四|五|六|几|1|2|3|4)(?:个|只|条|匹|位|辆|台|部|套|间|栋|架|把|家|对|名)"
_WHEN = (
    r"(?:每(?:天|日|周[一二三四五六日末]?|星期[一二三四五六日]?|年|个?月|个?周末|晚|早|到周末|隔[^，,]{1,4}|逢[^，,]{1,4}|次[^，,]{1,6})(?:早上|晚上|都|下午|早晨|清晨)*"
    r"|周[一二三四五六日末]都|经常|常常|总是|习惯(?:在|了)?|定期)"
)


def _denied_home(match: re.Match[str]) -> Iterator[_Draft]:
    yield _Draft(attribute="home", label=f"不在{_value(match['x'])}", is_sole=True)


def _works(match: re.Match[str]) -> Iterator[_Draft]:
    job = _value(match["job"])
    if re.search(_JOB, job):
        yield _Draft(attribute="employer", label=match["x"], is_sole=True)
        yield _Draft(attribute="occupation", label=job, is_sole=True)


def _major(match: re.Match[str]) -> Iterator[_Draft]:
    value = _value(match["x"] or match["y"])
    if _is_worth(value):
        yield _Draft(attribute="education", label=value, is_sole=True)


def _allergy(match: re.Match[str]) -> Iterator[_Draft]:
    denial = "不" if match["no"] or match["no2"] else ""
    if _is_worth(match["x"]):
        yield _Draft(
            attribute="allergy", label=f"{denial}对{match['x']}过敏" if denial else match["x"]
        )


def _liking(match: re.Match[str]) -> Iterator[_Draft]:
    value = _value(match["x"])
    if _is_worth(value):
        yield _Draft(attribute=f"preference:{_topic(value)}", label=value)


def _interest(match: re.Match[str]) -> Iterator[_Draft]:
    value = match["x"]
    if _is_worth(value):
        yield _Draft(attribute=f"preference:{_topic(value)}", label=value)


def _visited(match: re.Match[str]) -> Iterator[_Draft]:
    value = _value(match["x"])
    if not re.match(r"很多|一些|那|这|几|不少", value):
        yield _Draft(attribute=f"travel:{value}", label=value)


_RULES: Sequence[tuple[re.Pattern[str], _Maker]] = tuple(
    (re.compile(f"^{_ADVERB}{pattern}"), make)
    for pattern, make in (
        # 谁
        (r"(?:名字)?叫(?:做)?(?P<x>[\u4e00-\u9fff]{2,4}(?=$|[，,。！])|[A-Z][A-Za-z]+)", _sole("name")),
        (r"是(?P<x>[王李张刘陈杨黄赵吴周徐孙马朱胡郭何高林罗郑梁谢宋唐许邓冯韩曹曾彭萧蔡潘田董袁于余叶蒋杜苏魏程吕丁任姚卢傅钟姜崔谭廖范汪陆金石戴贾韦夏邱方侯邹熊孟秦白江阎薛尹段雷龙史陶贺顾毛郝龚邵万钱严武莫孔向汤宫焦温康施文牛樊葛邢安齐][\u4e00-\u9fff]{1,2})(?<![人员师生座者迷长工手民领管家])$", _sole("name")),
        (r"(?P<x>\d{1,3}|[一二三四五六七八九十]{1,4})岁", _sole("age")),
        (r"(?:出生于|出生在|生于)(?P<x>.+)", _sole("origin")),
        (r"(?:来自|老家在|老家是)(?P<x>.+)", _sole("origin")),
        (r"是(?P<x>(?!(?:一个|个|好|坏|大|小|老|普通|这|那|年轻|内向|外向|有|上班)[\u4e00-\u9fff]*人)[\u4e00-\u9fff]{2,5})人$", _sole("origin")),
        (r"在(?P<x>[\u4e00-\u9fff]{2,10})长大", _sole("origin")),
        # 住
        (r"不(?:再)?住在?(?P<x>[^，,]{2,20})", _denied_home),
        (r"(?:居住在|定居在?|住在|住)(?P<x>(?!院|校|宿|得|了|过来|进|几|下).+)", _sole("home")),
        (r"(?:搬家?(?:到|去|来|回)(?:了)?|搬家?至)(?P<x>[^，,]{2,20})", _sole("home", relation=Relation.REPLACES)),
        (r"(?P<x>(?:和|跟|与)(?!你)[^，,]{1,12})(?:一起)?住(?:在一起)?(?:$|[，。])", _sole("household")),
        # 工作 学习
        (r"(?:跳槽到|入职(?:了)?|加入(?:了)?|换到(?:了)?)(?P<x>[^，,]{2,20})", _sole("employer", relation=Relation.REPLACES)),
        (r"在(?P<x>[^，,在]{2,20}?)(?:当|做)(?:一名|一个|一位)?(?P<job>[^，,]{2,10})", _works),
        (r"在(?P<x>(?!这|那|家|努力|认真|拼命|思考|考虑|找|寻找|换|想|忙|准备|为|当前|现在|目前|一家公司工|一家公司上)[^，,在]{2,20}?)(?:工作|上班|任职|就职|实习)(?!上|中|时|日|压力|遇|方面)", _sole("employer")),
        (r"是(?:一名|一个|一位|个|名|位)?(?P<x>[^，,是]{0,8}" + _JOB + r")(?:$|[，,。！])", _sole("occupation")),
        (r"(?:当上?了?|担任)(?:一名|一个|一位)?(?P<x>[^，,]{0,8}" + _JOB + ")", _sole("occupation")),
        (r"(?:从事|做)(?P<x>[^，,]{2,12}?)(?:工作|行业|这一行)(?:$|[，,。！])", _sole("occupation")),
        (r"(?:已经)?(?P<x>退休|失业|待业)了?(?:$|[，,。])", _sole("occupation", relation=Relation.REPLACES)),
        (r"(?:辞职|离职|辞掉(?:了)?工作|被裁)(?:了|$)", _fixed("employer", "无", relation=Relation.ENDED)),
        (r"在(?P<x>[^，,在]{2,15}?)(?:读书|上学|读研究?生?|读博士?|念书|读大学|上大学)", _sole("education")),
        (r"(?:的)?专业是(?P<x>.+)|(?:学的是|主修|攻读)(?P<y>.+)", _major),
        (r"(?:毕业于|从)(?P<x>[^，,]{2,20}?(?:大学|学院|中学|高中|学校|专业))(?:毕业)?", _sole("education")),
        (r"是(?:一名|一个|一位|名|个)?(?P<x>[^，,是]{0,10}(?:大学生|研究生|博士生|高中生|中学生|学生|大[一二三四]新?生?))(?:$|[，,。！])", _sole("education")),
        # 人 动物
        (r"(?P<x>(?:已经)?(?:结婚|离婚|订婚)了?|单身|已婚|未婚)(?:$|[，,。！])", _sole("partner")),
        (rf"有(?P<x>{_COUNT}?(?:亲|双胞胎|可爱的)?(?P<kin>{_KIN}|{_PARTNER}|孩子|男孩|女孩))(?:，?(?:名字)?叫(?P<name>[\u4e00-\u9fff]{{1,4}}|[A-Z][a-z]+))?(?=$|[，,。！、])", _relative),
        (rf"(?:有|养了|养着|养|领养了)(?P<x>{_COUNT}?(?:[^，,的]{{0,6}}的?)?(?P<pet>小?(?:狗|猫|猫咪|狗狗|兔子|仓鼠|鹦鹉|乌龟|金鱼|鱼|柯基|金毛|柴犬|泰迪|哈士奇|布偶|橘猫|拉布拉多|边牧)))(?:，?(?:它)?(?:名字)?叫(?:做)?(?P<name>[\u4e00-\u9fff]{{1,4}}|[A-Z][a-z]+))?(?=$|[，,。！])", _pet),
        # 身体
        (r"(?P<no>不?)对(?P<x>[^，,]{1,15}?)(?:并)?(?P<no2>不|没有?)?过敏", _allergy),
        (r"(?P<x>(?:乳糖|麸质|酒精)不耐受?)", _sole("allergy")),
        (r"(?P<x>[^，,有是不没]{1,6})过敏(?:$|[，,。])", _many("allergy")),
        (r"(?:是)?(?:一个|个|一名)?(?P<x>素食主义者|素食者|吃素|吃全素|吃纯素|清真饮食|低碳饮食)", _sole("diet")),
        (r"(?:从来?)?不(?:能)?(?P<verb>吃|喝)(?P<x>(?!饭|早|午|晚|药|下|饱|完|了|惯)[^，,了]{1,8})", _many("diet", label="不{verb}{}")),
        (rf"(?:有|患有|得了|患了|被诊断(?:出|为|患有)?)(?:轻微|严重|慢性|轻度|中度)?的?(?P<x>[^，,]{{0,4}}{_CONDITION})", _by_topic("health")),
        # 语言 技能
        (rf"(?:会|能)(?:说|讲)(?P<x>.*(?:{_LANGUAGE}).*)", _speaks),
        (r"(?:正?在|开始)(?:学习?|练习?|自学)(?P<x>.+)", _learns),
        (r"会(?P<x>(?:弹|拉|吹|开车|做饭|游泳|下棋|画画|写代码|编程|滑雪|骑马|唱歌|跳舞|打)[^，,]{0,8})(?:$|[，,。！])", _by_topic("skill")),
        # 喜好
        (r"(?:不(?:太|怎么|是很|大)?喜欢|讨厌|厌恶|不爱(?=[吃喝听看玩])|受不了|害怕|不习惯)(?P<x>.+)", _by_topic("dislike")),
        (r"从(?:喝|吃|用)?(?P<old>[^，,从]{1,8})(?:换成|改成|改喝|改吃|改用)(?:了)?(?P<x>[^，,]{1,10})", _switched),
        (r"(?:更喜欢|比较喜欢|偏爱|偏好|更爱)(?P<x>.+)", _liking),
        (r"喜欢的(?P<kind>[^，,的是]{1,10})(?:是)(?P<x>.+)", _favourite),
        (r"(?P<verb>喜欢上?|热爱|喜爱|钟爱|爱上|迷上了?|着迷于|酷爱|痴迷于?|爱(?=[吃喝听看玩读写唱跳画做打]))了?(?P<x>.+)", _each("preference", "喜欢")),
        (r"对(?P<x>[^，,]{2,20}?)(?:很|非常|特别|比较|十分|也|都|越来越|充满|有着?|颇)*(?:有|感)?(?:浓厚的|极大的|一些)?(?:感?兴趣|热情)(?!吗)", _interest),
        (r"(?:的)?(?:兴趣)?爱好(?:是|有|包括)(?P<x>.+)", _each("hobby", "爱好")),
        # 做
        (r"(?:戒(?:了|掉)?(?P<x>烟|酒|糖|咖啡))", _by_topic("habit", relation=Relation.ENDED)),
        (rf"(?:有|买了|拥有|开着|开)(?P<x>{_COUNT}[^，,的]{{0,8}}(?:车|自行车|摩托车|钢琴|吉他|相机|电脑|房子|公寓|店|餐厅|咖啡馆|书店))", _by_topic("possession")),
        (r"(?:正?在)?(?:写|创作|开发|做|翻译|设计)(?:着)?(?P<x>(?:一本|一部|一篇|一个|一款|自己的)[^，,]{0,10}(?:小说|书|论文|应用|游戏|网站|项目|剧本|专辑|App|APP))", _by_topic("project")),
        (r"(?:正?在)?(?:准备|备战|备考)(?P<x>[^，,]{0,12}(?:考试|面试|比赛|马拉松|演讲|考研|高考|答辩|婚礼))", _by_topic("plan")),
        (r"(?:的)?(?:梦想|目标|理想|愿望)(?:就是|是)(?P<x>.+)", _aim("goal")),
        (r"(?:想要?|希望(?:能够?|可以)?|渴望)(?P<x>(?:学会?|成为|当|考|开一|出国|移民|减肥|创业|买(?:一|房|车)|换(?:一份)?工作|找(?:一份)?(?:新)?工作|去[\u4e00-\u9fff]{2,8}(?:旅游|旅行|留学|看)|写一|读(?:研|博)|提高|提升|参加|搭建|建立|拥有)[^，,]*)", _aim("goal")),
        (r"(?:打算|计划|准备|决定)(?:好了?)?(?:要)?(?:在|于)?(?P<x>.+)", _aim("plan")),
        (r"去过(?P<x>[\u4e00-\u9fff]{2,12})(?:$|[，,。！])", _visited),
        (rf"(?P<when>{_WHEN})(?P<x>.+)", _habit),
        # 想
        (r"(?:信仰|信奉|信)(?P<x>佛教?|基督教|天主教|伊斯兰教|道教)", _sole("belief:信仰")),
        (r"坚信(?P<x>.+)", _by_topic("belief")),
    )
)  # fmt: skip


_MINE: Sequence[tuple[re.Pattern[str], _Maker]] = tuple(
    (re.compile(pattern), make)
    for pattern, make in (
        (r"^我的?(?:全|真|英文|中文)?名(?:字)?(?:是|叫)(?P<x>[\u4e00-\u9fff]{2,4}|[A-Z][A-Za-z]+)", _sole("name")),
        (r"^(?:你?可以|大家都?|朋友们?都?|请)?叫我(?P<x>[\u4e00-\u9fff]{2,4}|[A-Z][A-Za-z]+)(?=$|[，,。！吧])", _sole("name")),
        (r"^我的?生日(?:是|在)(?P<x>.*[\d一二三四五六七八九十].*)", _sole("birthday")),
        (r"^我的?(?:老家|家乡)(?:是|在)(?P<x>.+)", _sole("origin")),
        (r"^我的?家(?:现在)?(?:住)?在(?P<x>.+)", _sole("home")),
        (r"^我(?:的)?(?:的)?(?:职业|工作)是(?P<x>.+)", _sole("occupation")),
        (r"^我的?(?:邮箱|电子邮件|电话|手机号?|微信)(?:号码?|地址)?(?:是|：|:)\s*(?P<x>[\w.@+-]+)", _sole("contact:user")),
        (r"^我的?专业是(?P<x>.+)", _sole("education")),
        (r"^我的?(?:母语)是(?P<x>.+)", _speaks),
        (r"^我的?(?:最大的?|主要的?)?(?:业余)?(?:兴趣)?爱好(?:是|有|包括)(?P<x>.+)", _each("hobby", "的爱好包括")),
        (r"^我的?(?:梦想|目标|理想|愿望)(?:就)?是(?P<x>.+)", _aim("goal")),
        (r"^我的?最爱是(?P<x>.+)", _by_topic("preference")),
        (r"^我(?:一直)?最?喜欢的(?P<kind>[^，,的是]{1,10})(?:是|有)(?P<x>.+)", _favourite),
        (rf"^我的?(?P<kin>{_KIN}|{_PARTNER})(?:的名字)?(?:是|叫)(?P<name>(?P<x>[\u4e00-\u9fff]{{2,3}}|[A-Z][a-z]+))(?=$|[，,。！])", _relative),
        (r"^我(?:家|的|家的)(?P<x>(?P<pet>(?:小)?(?:狗|猫|猫咪|狗狗|兔子|仓鼠|鹦鹉|乌龟)))(?:的名字)?(?:是|叫)(?P<name>[\u4e00-\u9fff]{1,4}|[A-Z][a-z]+)", _pet),
    )
)  # fmt: skip

_CONTRAST = re.compile(r"[，,](?:而)?不(?:是|在)|而不是")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Subject:
    subject: str
    display: str
    predicate: str


def facts(sentence: Sentence, *, said_at: datetime | None) -> list[Stated]:
    """Return what a Chinese sentence states, in order."""
    text = sentence.text
    if _UNREAL.search(text):
        return []
    found: list[Stated] = []
    denied = False
    for clause, start, subject in _clauses(sentence):
        for draft, who, told in _drafts(clause.text, subject):
            if draft.attribute.startswith("plan:") and _TODAY.search(text):
                continue
            fact = _fact(draft, who, told, text, clause.text, denied=denied, said_at=said_at)
            found.append(Stated(fact=fact, start=start, end=clause.start + len(clause.text)))
        denied = subject is not None and subject.predicate.startswith(
            ("不是", "不住", "不在", "没")
        )
    positive = {one.fact.attribute for one in found if not one.fact.label.startswith("不在")}
    return [
        one
        for one in found
        if not (one.fact.label.startswith("不在") and one.fact.attribute in positive)
    ]


def told_by_user(text: str) -> str | None:
    """Return a sentence of the user's own doing, bare of greetings, if it may be believed."""
    if _UNREAL.search(text) or _PASSING.search(text) or re.search(r"[你您]", _bare(text)):
        return None
    bare = _bare(text)
    is_own = (
        re.match(r"^(?:今天|昨天|昨晚|前天|上周末?|周末|去年|上个?月)*[，,]?(?:我|跟|和)", bare)
        is not None
    )
    return bare if is_own else None


def sentence_about_user(told: str) -> str:
    """Return it said of the user."""
    return _of_the_user(told if "我" in told else f"我{told}")


def _clauses(sentence: Sentence) -> Iterator[tuple[Clause, int, _Subject | None]]:
    text = sentence.text
    clauses = list(split(text, _BOUNDARY))
    if sentence.asks:
        clauses = clauses[:-1]
    quoted = quoted_spans(text)
    subject: _Subject | None = None
    subject_from = 0
    for clause in clauses:
        if _REPORTED.search(text[: clause.start]):
            return
        is_barred = BARRED in clause.text or any(a <= clause.start < b for a, b in quoted)
        if is_barred or _ASKING.search(clause.text) or _PASSING.search(clause.text):
            subject = None
            continue
        bare = _bare(clause.text)
        start = clause.start
        stated = _state(bare)
        goes_on = (
            subject is not None
            and not re.search(r"[你您他她它这那]", subject.predicate)
            and not re.match(r"[我你他她它这那谁大家]|(?:名字)?叫", bare)
        )
        if stated is None and subject is not None and goes_on:
            stated = _Subject(subject=subject.subject, display=subject.display, predicate=bare)
            start = subject_from
        subject, subject_from = stated, start
        yield clause, start, stated


def _bare(clause: str) -> str:
    text = clause
    while (leading := _LEADING.match(text)) is not None:
        text = text[leading.end() :]
    return text


def _state(bare: str) -> _Subject | None:
    person = _PERSON.match(bare)
    if person is not None:
        kin, name = person["kin"], person["name"]
        return _Subject(
            subject=name or f"用户的{kin}",
            display=f"用户的{kin}{name or ''}",
            predicate=bare[person.end() :],
        )
    first = _I.match(bare)
    if first is None:
        return None
    return _Subject(subject=USER, display="用户", predicate=bare[first.end() :])


def _drafts(clause: str, subject: _Subject | None) -> Iterator[tuple[_Draft, _Subject, str]]:
    bare = _bare(clause)
    for pattern, make in _MINE:
        if (match := pattern.match(bare)) is not None:
            for draft in make(match):
                user = _Subject(subject=USER, display="用户", predicate=bare)
                text = bare if draft.text is None else f"我{draft.text}"
                yield draft, user, _of_the_user(text)
            return
    if subject is None:
        return
    person = _PERSON.match(bare)
    if person is not None and person["name"]:
        kin = person["kin"]
        user = _Subject(subject=USER, display="用户", predicate=bare)
        yield (
            _Draft(attribute=_kin_attribute(kin, person["name"]), label=person["name"]),
            user,
            (f"用户的{kin}叫{person['name']}。"),
        )
    over = _OVER.search(subject.predicate)
    predicate = subject.predicate
    if over is not None:
        predicate = re.sub(r"不再|已经不|早就不", "", predicate)
        predicate = re.sub(r"不(.{1,12})了(?=$|[，。！])", r"\1", predicate)
    drafts = [_over(draft) for draft in _matched(predicate)] if over is not None else []
    for draft in drafts or _matched(subject.predicate):
        told = subject.predicate if draft.text is None else draft.text
        shown = subject.display + told.strip("，,。！ ") + "。"
        yield draft, subject, _of_the_user(shown)


def _matched(predicate: str) -> list[_Draft]:
    for pattern, make in _RULES:
        if (match := pattern.match(predicate)) is not None and (drafts := list(make(match))):
            return drafts
    return []


def _over(draft: _Draft) -> _Draft:
    if draft.attribute == "allergy" or draft.relation is not None:
        return draft
    return _Draft(
        attribute=draft.attribute,
        label=draft.label,
        is_sole=draft.is_sole,
        relation=Relation.ENDED,
    )


def _fact(
    draft: _Draft,
    who: _Subject,
    text: str,
    sentence: str,
    clause: str,
    *,
    denied: bool,
    said_at: datetime | None,
) -> Fact:
    is_past = _PAST.search(sentence) is not None and _STILL.search(clause) is None
    if draft.relation is not None:
        relation = draft.relation
    elif is_past or not draft.is_sole:
        relation = Relation.ADDS
    elif denied or _CORRECTING.search(sentence) or _CONTRAST.search(sentence):
        relation = Relation.CORRECTS
    elif _COEXISTING.search(clause):
        relation = Relation.ADDS
    else:
        relation = Relation.REPLACES if _TURNED.search(clause) else Relation.ADDS
    since = day_of(sentence, said_at) if relation is Relation.REPLACES else None
    past = _PAST.search(sentence)
    if is_past and past is not None and _PAST.search(text) is None:
        text = text.replace(who.display, f"{who.display}{past.group()}", 1)
    return Fact(
        subject=who.subject,
        attribute=draft.attribute,
        label=draft.label,
        text=text,
        relation=relation,
        is_past=is_past and relation is Relation.ADDS,
        confidence=0.9 if draft.is_sole else 0.8,
        valid_from=None if since is None else since.isoformat(),
    )


def _of_the_user(text: str) -> str:
    said = re.sub(rf"^我(?={_KIN}|{_PARTNER}|{_KNOWN}|家的)", "我的", text)
    said = said.replace("我们", "用户和同伴")
    first, _, rest = said.partition("我")
    said = f"{first}用户{rest}" if "我" in said and "用户" not in first else said
    said = said.replace("我", "自己").strip("，,。！!；; ")
    return said + "。"
