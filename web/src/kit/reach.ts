import type { Option } from '../data/wire';

/**
 * How far a slider goes: to an option's own bounds, and where it has none from what is usual (else 0) up to 50 for a
 * count, to 2 for any other number.
 */
export function reach(option: Option): { low: number; high: number; step: number } {
  const whole = option.kind === 'integer';
  const usual = typeof option.default === 'number' ? option.default : 0;
  return {
    low: option.at_least ?? usual,
    high: option.at_most ?? (whole ? 50 : 2),
    step: whole ? 1 : 0.01,
  };
}
