/**
 * Keys within a group of buttons of which one is chosen: `back` and `on` are the arrows that lead to its neighbours, Home
 * and End to its ends; what is reached is chosen.
 */
export function roving(
  back: string,
  on: string,
): (event: KeyboardEvent & { currentTarget: HTMLElement }) => void {
  return (event) => {
    const buttons = [...event.currentTarget.querySelectorAll('button')];
    const here = buttons.indexOf(event.target as HTMLButtonElement);
    const places: Record<string, number> = {
      [back]: here - 1,
      [on]: here + 1,
      Home: 0,
      End: buttons.length - 1,
    };
    const next = buttons[places[event.key] ?? -1];
    if (here < 0 || !next || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    next.focus();
    next.click();
  };
}
