/** Which models a plan names. Pure; any thread. */

/** Whether `pattern`, in which `*` stands for any characters, names the model `id`. Cost: linear in both, no regexp. */
export function matchesModel(pattern: string, id: string): boolean {
  const [head = '', ...rest] = pattern.split('*');
  const tail = rest.pop();
  if (tail === undefined) return pattern === id;
  if (!id.startsWith(head) || !id.endsWith(tail)) return false;
  const end = id.length - tail.length;
  let position = head.length;
  for (const part of rest) {
    const found = id.indexOf(part, position);
    if (found < 0) return false;
    position = found + part.length;
  }
  return position <= end;
}
