import type { Packed } from './wire';

/** Numbers in rows: `values[r * columns + c]`. */
export type Array2 = { rows: number; columns: number; values: Float32Array };

const HALVES = halves();

/** An array as it was sent; Error where its bytes are not as many as its shape says. */
export function unpack(packed: Packed): { shape: number[]; values: Float32Array } {
  const text = atob('f16' in packed ? packed.f16 : packed.f32);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  const count = packed.shape.reduce((a, b) => a * b, 1);
  const size = 'f16' in packed ? 2 : 4;
  if (bytes.length !== count * size)
    throw new Error(`${bytes.length} bytes for ${count} numbers of ${size} bytes`);
  if (size === 4) return { shape: packed.shape, values: new Float32Array(bytes.buffer) };
  const from = new Uint16Array(bytes.buffer);
  const values = new Float32Array(count);
  for (let i = 0; i < count; i++) values[i] = HALVES[from[i]!]!;
  return { shape: packed.shape, values };
}

/** `unpack` of an array of two axes. */
export function unpack2(packed: Packed): Array2 {
  const { shape, values } = unpack(packed);
  if (shape.length !== 2) throw new Error(`an array of ${shape.length} axes, expected 2`);
  return { rows: shape[0]!, columns: shape[1]!, values };
}

/** Every number of 16 bits by its bits (IEEE 754 binary16). */
function halves(): Float32Array {
  const table = new Float32Array(65536);
  for (let bits = 0; bits < 65536; bits++) {
    const sign = bits & 0x8000 ? -1 : 1;
    const exponent = (bits >> 10) & 0x1f;
    const fraction = bits & 0x3ff;
    if (exponent === 31) table[bits] = fraction ? NaN : sign * Infinity;
    else if (exponent === 0) table[bits] = sign * fraction * 2 ** -24;
    else table[bits] = sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
  }
  return table;
}
