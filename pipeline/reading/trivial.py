"""Messages that need no memory: greetings, thanks and the like, and nothing besides."""

import unicodedata
from typing import Final

_LONGEST: Final = 60
"""Characters from which on a message says more than any of these."""
_PHRASES: Final = frozenset(
    phrase
    for language in (
        "hi|hello|hello there|hi there|hey|hey there|hiya|howdy|good morning|good afternoon",
        "good evening|good night|how are you|hows it going|whats up|thanks|thank you|cheers|thx",
        "thank you very much|thank you so much|thanks a lot|many thanks|ok thanks",
        "okay thanks|ok thank you|great thanks|bye|goodbye",
        "bye bye|see you|see you later|have a nice day|youre welcome",
        "hallo|guten tag|guten morgen|guten abend|gute nacht|moin|servus|danke|danke schön",
        "danke dir|dankeschön|vielen dank|tschüss|auf wiedersehen",
        "bonjour|bonsoir|salut|coucou|merci|merci beaucoup|au revoir",
        "hola|buenos días|buenas tardes|buenas noches|gracias|muchas gracias|adiós|hasta luego",
        "olá|oi|bom dia|boa tarde|boa noite|obrigado|obrigada|muito obrigado|muito obrigada|tchau",
        "ciao|buongiorno|buonasera|grazie|grazie mille|arrivederci",
        "goedemorgen|goedemiddag|goedenavond|dank je|dank je wel|dankjewel|bedankt|doei",
        "hej|god morgon|tack|tack så mycket|hejdå|takk|tak|tusen takk",
        "cześć|dzień dobry|dziękuję|do widzenia|merhaba|günaydın|teşekkürler|teşekkür ederim",
        "привет|здравствуйте|добрый день|доброе утро|спасибо|большое спасибо|пока|до свидания",
        "你好|您好|早上好|晚上好|谢谢|多谢|谢谢你|再见",
        "こんにちは|おはよう|おはようございます|こんばんは|ありがとう|ありがとうございます|さようなら",
        "안녕하세요|안녕|감사합니다|고마워요",
        "नमस्ते|धन्यवाद|مرحبا|السلام عليكم|شكرا|مع السلامة|สวัสดี|ขอบคุณ",
    )
    for phrase in language.split("|")
)


def needs_no_memory(message: str) -> bool:
    """Return whether the whole of a message is one of a closed list of greetings and thanks.

    Case, punctuation, emoji and spaces are of no consequence. What says anything more, or agrees to
    something, needs memory: a wrong yes loses what was known, a wrong no costs a search.
    """
    return len(message) <= _LONGEST and _folded(message) in _FOLDED


def _folded(text: str) -> str:
    """Return a text as it is compared: marks that make a letter stay, those that end words go."""
    composed = unicodedata.normalize("NFKC", text).casefold()
    kept = "".join(
        character
        for character in unicodedata.normalize("NFC", composed)
        if unicodedata.category(character)[0] in "LMNZ" or character.isspace()
    )
    return " ".join(kept.split())


_FOLDED: Final = frozenset(map(_folded, _PHRASES))
