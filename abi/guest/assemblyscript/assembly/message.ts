const room: i32 = 512;
let length: i32 = 0;

/** Where the host finds what was said last. */
export const messageAt: usize = heap.alloc(room);

export function messageLength(): u32 {
  return length;
}

/** Keeps a message for the host's log and returns the code: `return fail(CODE_BAD_ARGUMENT, "why")`. */
export function fail(code: i32, why: string): i32 {
  length = 0;
  say(why);
  return code;
}

/** Adds to the message; what does not fit is cut, what is not ASCII shows as a question mark. */
export function say(words: string): void {
  for (let i = 0; i < words.length && length < room; i++) {
    const c = words.charCodeAt(i);
    sayByte(c < 128 ? <u8>c : 63);
  }
}

export function sayByte(c: u8): void {
  if (length < room) store<u8>(messageAt + length++, c);
}
