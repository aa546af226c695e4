/** The colours of groups of points, by name; each is told apart by a shape too. */
export const GROUPS = ['--weight', '--above', '--value', '--feed-forward', '--output'] as const;

export function groupColour(group: number): string {
  return `var(${GROUPS[group % GROUPS.length]})`;
}
