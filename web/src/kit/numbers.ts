import type { Scale } from '../data/wire';

/** So many significant digits, as `%g` writes them: `0.1235`, `-12.35`, `1.234e-07`. */
export function number(value: number, digits = 4): string {
  if (Number.isNaN(value)) return 'NaN';
  if (!Number.isFinite(value)) return value > 0 ? '∞' : '−∞';
  if (value === 0) return '0';
  const [mantissa, exponent] = value.toExponential(digits - 1).split('e') as [string, string];
  const power = Number(exponent);
  if (power < -4 || power >= digits) {
    const size = String(Math.abs(power)).padStart(2, '0');
    return `${trimmed(mantissa)}e${power < 0 ? '-' : '+'}${size}`;
  }
  return trimmed(fixed(value, Math.max(0, digits - 1 - power)));
}

/** So many places; what lies in the middle goes to the even neighbour, as Python rounds: 0.0625 is 0.062. */
function fixed(value: number, places: number): string {
  const scaled = Math.abs(value) * 10 ** places;
  // Only a sum of few powers of two can lie in the middle, and its product is exact.
  const between = scaled % 1 === 0.5 && Number.isInteger(value * 2 ** 30);
  const even = between && Math.floor(scaled) % 2 === 0;
  return even
    ? (Math.sign(value) * (Math.floor(scaled) / 10 ** places)).toFixed(places)
    : value.toFixed(places);
}

function trimmed(text: string): string {
  return text.includes('.') ? text.replace(/\.?0+$/, '') : text;
}

/** A difference of log-probabilities: two places, and a sign where it is not 0 by them. */
export function nats(value: number): string {
  if (Number.isNaN(value)) return 'nan';
  if (Math.abs(value) < 0.005) return '0.00';
  return (value > 0 ? '+' : '') + fixed(value, 2);
}

/** A value among many: three places, without the sign of a zero; −∞ for what a mask hides. */
export function threePlaces(value: number): string {
  if (!Number.isFinite(value)) return number(value);
  return Math.abs(value) < 0.0005 ? '0.000' : fixed(value, 3);
}

/** A value by itself: three places, or two digits and a power of ten where that says nothing. */
export function told(value: number): string {
  if (!Number.isFinite(value)) return number(value);
  return value !== 0 && Math.abs(value) < 0.001 ? value.toExponential(1) : fixed(value, 3);
}

/**
 * A value as it stands in a cell of a heat map: three digits, at most two places; nothing where they are 0 and where a
 * mask hides it.
 */
export function written(value: number, scale: Scale): string {
  if (Number.isNaN(value)) return 'NaN';
  const size = Math.abs(value);
  if (size < 0.005 || value === -Infinity) return '';
  const text = fixed(value, size < 9.995 ? 2 : size < 99.95 ? 1 : 0);
  return scale === 'signed' && value > 0 ? `+${text}` : text;
}

/** At most so many values; in the place of more, the means of neighbours. */
export function means(values: readonly number[], most: number): number[] {
  if (values.length <= most) return [...values];
  return Array.from({ length: most }, (_, n) => {
    const part = values.slice(
      Math.floor((values.length * n) / most),
      Math.floor((values.length * (n + 1)) / most),
    );
    return part.reduce((a, b) => a + b, 0) / part.length;
  });
}

/**
 * What a cell of a table counts as when its column is sorted: a number with its sign, `%`, `×`, thousands apart, or
 * `<.001`; null for anything else.
 */
export function numeric(text: string): number | null {
  const plain = text
    .trim()
    .replace(/[−–]/g, '-')
    .replace(/,(?=\d{3}(\D|$))/g, '')
    .replace(/^[<≤>≥±+]\s*/, '');
  const found = /^-?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?(?=\s*(%|×|x)?$)/i.exec(plain);
  if (found) return Number(found[0]) - (text.trim().startsWith('<') ? Number.EPSILON : 0);
  if (/^-?(∞|inf)$/.test(plain)) return plain.startsWith('-') ? -Infinity : Infinity;
  return null;
}

/** A probability as a reader reads it: three digits of a percentage, down to what is less than a thousandth of one. */
export function chance(share: number, locale: string): string {
  const format = (value: number, digits: number): string =>
    new Intl.NumberFormat(locale, { style: 'percent', maximumFractionDigits: digits }).format(value);
  if (share === 0 || share >= 0.9995) return format(share, 0);
  if (share < 0.00001) return `< ${format(0.00001, 3)}`;
  return format(share, share < 0.001 ? 3 : share < 0.1 ? 2 : 1);
}
