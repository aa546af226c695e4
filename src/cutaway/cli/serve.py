"""`cutaway serve`: the explorer, a page that sees inside models."""

from threading import Thread
from typing import Annotated

from cutaway.cli.help import argument, described, option
from cutaway.cli.terminal import note, tell
from cutaway.zoo import find


@described(
    "Show the explorer: a page in the browser that translates, writes and fills gaps, and shows how it came about."
)
def serve(
    models: Annotated[
        list[str] | None,
        argument("Models: bundled names, folders or GGUF files; all that are bundled unless given."),
    ] = None,
    host: Annotated[str | None, option("The address to listen on; this machine alone unless given.")] = None,
    port: Annotated[
        int | None, option("The port to listen on; 8765 unless given, or a free one.", min=0, max=65535)
    ] = None,
    open: Annotated[bool, option("Open the page in the browser.", "--open")] = False,
    lan: Annotated[
        bool, option("Let others on the network in, by a link with a code: a phone, say.", "--lan")
    ] = False,
    allow_host: Annotated[
        list[str] | None,
        option("Another name that this machine is asked by, name or name:port; may be repeated."),
    ] = None,
    verbose: Annotated[bool, option("Tell every request on standard error.", "--verbose")] = False,
) -> None:
    for each in models or ():
        find(each)

    from cutaway.serve.server import PORT, open_door
    from cutaway.serve.server import serve as run

    door = open_door(host, port, lan, allow_host or ())
    if port is None and door.port != PORT:
        note("port {port} is taken; this is another one", port=PORT)

    def started() -> None:
        tell("{address}  (Ctrl-C ends it)", address=door.address)
        if open:
            import webbrowser

            # a browser may hold whoever starts it until it is closed
            Thread(target=webbrowser.open, args=(door.address,), daemon=True).start()

    run(models or (), door, started, verbose)
