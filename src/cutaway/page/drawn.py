"""What draws itself: in a notebook, as HTML, as SVG, as text."""

from abc import ABC, abstractmethod

from cutaway.errors import CutawayError
from cutaway.page.blocks import Page
from cutaway.words import Locale, reader_locale


class Drawn(ABC):
    """An answer that has a page. A notebook shows it in the language that the environment asks for (LANG)."""

    @abstractmethod
    def page(self) -> Page:
        """The answer, laid out."""

    def to_text(self, columns: int = 80, locale: Locale | None = None) -> str:
        """As lines of at most `columns` columns, save lines to copy, which stay whole."""
        from cutaway.page.console import Terminal

        return Terminal(columns, locale=locale or reader_locale()).text(self.page())

    def to_html(self, locale: Locale | None = None) -> str:
        """As one HTML document that needs no other file and no network."""
        from cutaway.page.html import document

        return document(self.page(), locale or reader_locale())

    def to_svg(self, locale: Locale | None = None) -> str:
        """The first figure of the page, as one SVG picture that needs no other file; `page.figures.figures` gives all.

        Raises CutawayError where the page is text and plain numbers only.
        """
        from cutaway.page.figures import figures

        for _, picture in figures(self.page(), locale or reader_locale()):
            return picture
        raise CutawayError("this answer has no figure; take to_html or to_text")

    def __repr__(self) -> str:
        """What a prompt shows; a dataclass leaves it alone with `repr=False`."""
        return self.to_text()

    def _repr_html_(self) -> str:
        from cutaway.page.html import fragment

        return fragment(self.page(), reader_locale())
