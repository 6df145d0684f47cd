// @ts-ignore: decorator
@external("pol_v1", "log")
declare function hostLog(level: i32, at: usize, length: usize): void;

/** Writes a line to the engine's log; levels are LOG_DEBUG to LOG_ERROR. Not in decide: it allocates. */
export function log(level: i32, line: string): void {
  const bytes = String.UTF8.encode(line);
  hostLog(level, changetype<usize>(bytes), bytes.byteLength);
}

/** The lowest level that is written. */
// @ts-ignore: decorator
@external("pol_v1", "log_level")
export declare function logLevel(): i32;

/** The capabilities this module got. */
// @ts-ignore: decorator
@external("pol_v1", "granted")
export declare function granted(): u64;
