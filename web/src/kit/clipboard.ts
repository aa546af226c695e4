/** Copy a text. Rejects where the browser does not allow it. */
export async function copyText(text: string): Promise<void> {
  if (navigator.clipboard) await navigator.clipboard.writeText(text);
  else if (!copiedByHand(text)) throw new Error('refused');
}

// A page that came over plain HTTP from another machine has no clipboard object.
function copiedByHand(text: string): boolean {
  const field = document.createElement('textarea');
  field.value = text;
  field.className = 'unseen';
  document.body.append(field);
  field.select();
  const done = document.execCommand('copy');
  field.remove();
  return done;
}
