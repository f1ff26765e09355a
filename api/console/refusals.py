"""Why a page or an act is refused, where the console itself refuses it.

FormError          a field holds what can't be meant; the message names it and says what it takes
UnknownPageError   there is nothing of that name, or it is not for who asks
ChangedError       what was decided on is not what is there any more: somebody was faster
"""


class FormError(Exception):
    """A field holds what can't be meant; the message names it and says what it takes."""


class UnknownPageError(Exception):
    """There is nothing of that name, or it is not for who asks; the message says what to do."""


class ChangedError(Exception):
    """What was decided on is not what is there any more; the message says what changed."""
