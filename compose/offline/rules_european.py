"""What a German, Spanish or Portuguese sentence states of the user: the plainest forms only."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from compose.offline.rules_dates import day_of
from compose.offline.rules_items import USER, Fact, Stated
from compose.offline.rules_text import BARRED, Sentence
from schemas.memory import Relation

# ruff: noqa: E501 - a form is one line of the table


@dataclass(frozen=True, slots=True, kw_only=True)
class _Form:
    """One way of saying something, and the same in the third person."""

    pattern: re.Pattern[str]
    attribute: str
    text: str
    relation: Relation | None = None
    is_past: bool = False


def _form(
    pattern: str,
    attribute: str,
    text: str,
    relation: Relation | None = None,
    *,
    is_past: bool = False,
) -> _Form:
    compiled = re.compile(rf"(?i)(?:^|[,;:]\s*|\b(?:und|y|e|aber|pero|mas)\s+){pattern}")
    return _Form(
        pattern=compiled, attribute=attribute, text=text, relation=relation, is_past=is_past
    )


_X = r"(?P<x>[^,;.!?:]{2,80}?)(?=\s+(?:und|y|e|aber|pero|mas|weil|porque|denn|con|mit|com)\s|[,;.!?:]|$)"
_PLACE = r"(?P<x>(?-i:[A-ZÄÖÜÁÉÍÓÚÑ])[^,;.!?:]{1,60}?)(?=\s+(?:und|y|e|aber|pero|mas|con|mit|com|und|seit|desde|ahora|jetzt|agora)\s?|[,;.!?:]|$)"
_GERMAN = r"(?:(?:jetzt|nun|heute|eigentlich|also|und|auch|hallo|hi) )*"
_IBERIAN = (
    r"(?:(?:ahora|agora|también|también me|hola|olá|oi|yo|eu|en realidad|na verdade|y|e)[, ]+)*"
)

_FORMS: Sequence[_Form] = (
    _form(rf"{_GERMAN}ich (?:wohne|lebe)(?: jetzt| nun)? in {_PLACE}", "home", "Der Nutzer wohnt in {x}."),
    _form(rf"{_GERMAN}(?:jetzt|nun) (?:wohne|lebe) ich in {_PLACE}", "home", "Der Nutzer wohnt jetzt in {x}.", Relation.REPLACES),
    _form(rf"ich bin (?:\w+ ){{0,3}}nach {_PLACE}(?= (?:gezogen|umgezogen))", "home", "Der Nutzer ist nach {x} gezogen.", Relation.REPLACES),
    _form(rf"ich (?:wohne|lebe) nicht mehr in {_PLACE}", "home", "Der Nutzer wohnt nicht mehr in {x}.", Relation.ENDED),
    _form(rf"ich (?:habe|hatte) früher in {_PLACE}(?= gewohnt| gelebt)", "home", "Der Nutzer hat früher in {x} gewohnt.", is_past=True),
    _form(rf"ich komme aus {_PLACE}", "origin", "Der Nutzer kommt aus {x}."),
    _form(rf"{_GERMAN}(?:ich heiße|mein name ist) {_PLACE}", "name", "Der Nutzer heißt {x}."),
    _form(rf"{_GERMAN}ich arbeite (?:jetzt )?als {_X}", "occupation", "Der Nutzer arbeitet als {x}."),
    _form(rf"{_GERMAN}ich arbeite (?:jetzt )?(?:bei|für) {_X}", "employer", "Der Nutzer arbeitet bei {x}."),
    _form(rf"{_GERMAN}ich bin allergisch gegen {_X}", "allergy", "Der Nutzer ist allergisch gegen {x}."),
    _form(rf"{_GERMAN}ich bin (?P<x>vegetarier(?:in)?|veganer(?:in)?)\b", "diet", "Der Nutzer ist {x}."),
    _form(rf"{_GERMAN}ich (?:mag|liebe) (?!dich|es|das|kein|nicht|sie|ihn){_X}", "preference:{topic}", "Der Nutzer mag {x}."),
    _form(rf"{_GERMAN}ich mag kein(?:e|en)? {_X}", "dislike:{topic}", "Der Nutzer mag kein {x}."),
    _form(rf"{_GERMAN}ich lerne (?:gerade )?(?!das|es|viel){_X}", "skill:{topic}", "Der Nutzer lernt {x}."),
    _form(rf"meine (?P<kin>schwester|mutter|frau|tochter|freundin) heißt {_PLACE}", "relative:{kin}", "Die {kin} des Nutzers heißt {x}."),
    _form(rf"mein (?P<kin>bruder|vater|mann|sohn|freund|hund) heißt {_PLACE}", "relative:{kin}", "Der {kin} des Nutzers heißt {x}."),
    _form(rf"{_IBERIAN}vivo (?:ahora )?en {_PLACE}", "home", "El usuario vive en {x}."),
    _form(rf"{_IBERIAN}me (?:mudé|he mudado) a {_PLACE}", "home", "El usuario se mudó a {x}.", Relation.REPLACES),
    _form(rf"{_IBERIAN}ya no vivo en {_PLACE}", "home", "El usuario ya no vive en {x}.", Relation.ENDED),
    _form(rf"{_IBERIAN}(?:antes )?vivía (?:antes )?en {_PLACE}", "home", "El usuario vivía en {x}.", is_past=True),
    _form(rf"{_IBERIAN}(?:me llamo|mi nombre es) {_PLACE}", "name", "El usuario se llama {x}."),
    _form(rf"{_IBERIAN}soy de {_PLACE}", "origin", "El usuario es de {x}."),
    _form(rf"{_IBERIAN}trabajo (?:ahora )?como {_X}", "occupation", "El usuario trabaja como {x}."),
    _form(rf"{_IBERIAN}trabajo (?:ahora )?(?:en|para) (?!casa|esto|eso){_X}", "employer", "El usuario trabaja en {x}."),
    _form(rf"{_IBERIAN}soy alérgic[oa] a(?:l)? {_X}", "allergy", "El usuario es alérgico a {x}."),
    _form(rf"{_IBERIAN}soy (?P<x>vegetarian[oa]|vegan[oa])\b", "diet", "El usuario es {x}."),
    _form(rf"{_IBERIAN}no me gustan? (?!que|eso|esto){_X}", "dislike:{topic}", "Al usuario no le gusta {x}."),
    _form(rf"{_IBERIAN}me (?:gustan?|encantan?) (?:mucho )?(?!que|eso|esto|tu|hablar){_X}", "preference:{topic}", "Al usuario le gusta {x}."),
    _form(rf"{_IBERIAN}estoy aprendiendo (?:a )?{_X}", "skill:{topic}", "El usuario está aprendiendo {x}."),
    _form(rf"mi (?P<kin>hermana|hermano|madre|padre|hija|hijo|esposa|esposo|mujer|marido|novia|novio|perro|perra|gata|gato) se llama {_PLACE}", "relative:{kin}", "El familiar ({kin}) del usuario se llama {x}."),
    _form(rf"{_IBERIAN}moro (?:agora )?em {_PLACE}", "home", "O usuário mora em {x}."),
    _form(rf"{_IBERIAN}(?:me mudei|mudei-me) para {_PLACE}", "home", "O usuário mudou-se para {x}.", Relation.REPLACES),
    _form(rf"{_IBERIAN}não moro mais em {_PLACE}", "home", "O usuário não mora mais em {x}.", Relation.ENDED),
    _form(rf"{_IBERIAN}(?:me chamo|meu nome é|o meu nome é) {_PLACE}", "name", "O usuário chama-se {x}."),
    _form(rf"{_IBERIAN}sou (?:de|do|da) {_PLACE}", "origin", "O usuário é de {x}."),
    _form(rf"{_IBERIAN}trabalho (?:agora )?como {_X}", "occupation", "O usuário trabalha como {x}."),
    _form(rf"{_IBERIAN}sou alérgic[oa] a(?:o)? {_X}", "allergy", "O usuário é alérgico a {x}."),
    _form(rf"{_IBERIAN}(?:eu )?não gosto de {_X}", "dislike:{topic}", "O usuário não gosta de {x}."),
    _form(rf"{_IBERIAN}(?:eu )?(?:gosto|adoro) (?:muito )?(?:de )?(?!você|isso|que){_X}", "preference:{topic}", "O usuário gosta de {x}."),
    _form(rf"{_IBERIAN}(?:estou aprendendo|estou a aprender) (?:a )?{_X}", "skill:{topic}", "O usuário está aprendendo {x}."),
)  # fmt: skip

_CORRECTING = re.compile(
    r"(?i)\b(?:eigentlich|falsch|ich meinte|korrektur|en realidad|me equivoqué|quise decir"
    r"|corrección|na verdade|me enganei|errei|correção)\b|^\s*(?:nein|no|não)\s*,"
)
_TURNED = re.compile(r"(?i)\b(?:jetzt|nun|inzwischen|ahora|agora)\b")
_COEXISTING = re.compile(r"(?i)\b(?:auch|außerdem|también|também|além)\b")
_UNREAL = re.compile(
    r"(?i)\b(?:wenn|falls|würde|si (?:yo|viviera|fuera)|se eu|vielleicht|quizás?|talvez)\b"
)
_SOLE = frozenset({"home", "origin", "name", "occupation", "employer", "diet"})


def facts(sentence: Sentence, *, said_at: datetime | None) -> list[Stated]:
    """Return what the sentence states, in the order of the table."""
    text = sentence.text
    if sentence.asks or BARRED in text or _UNREAL.search(text) or '"' in text or "„" in text:
        return []
    found: list[Stated] = []
    for form in _FORMS:
        for match in form.pattern.finditer(text):
            groups = {name: value.strip() for name, value in match.groupdict().items() if value}
            value = groups["x"]
            topic = " ".join(
                re.sub(r"(?i)^(?:el|la|los|las|o|a|os|as|die|der|das) ", "", value)
                .lower()
                .split()[:2]
            )
            kin = groups.get("kin", "")
            found.append(
                Stated(
                    fact=Fact(
                        subject=USER,
                        attribute=form.attribute.format(topic=topic, kin=kin.lower()),
                        label=value,
                        text=form.text.format(x=value, kin=kin),
                        relation=form.relation or _relation(form.attribute, text),
                        is_past=form.is_past,
                        valid_from=_since(form, text, said_at),
                    ),
                    start=0,
                    end=len(text),
                )
            )
    return found


def _relation(attribute: str, text: str) -> Relation:
    if attribute not in _SOLE or _COEXISTING.search(text):
        return Relation.ADDS
    if _CORRECTING.search(text):
        return Relation.CORRECTS
    return Relation.REPLACES if _TURNED.search(text) else Relation.ADDS


def _since(form: _Form, text: str, said_at: datetime | None) -> str | None:
    if form.relation is not Relation.REPLACES:
        return None
    day = day_of(text, said_at)
    return None if day is None else day.isoformat()
