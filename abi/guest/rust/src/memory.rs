//! Memory that is taken once and never given back.

use core::mem::{align_of, size_of};

use crate::abi;
use crate::guest::state;

/// Takes a zeroed slice for the life of the module, in [`crate::Policy::new`]; None when there is no
/// more memory. T must be a type for which all bytes zero are a value: the bound says so for the
/// types that are needed here.
pub fn take<T: Zeroed>(len: usize) -> Option<&'static mut [T]> {
    if state().deciding {
        return None;
    }
    let bytes = len.checked_mul(size_of::<T>())?;
    let at = raw(bytes)?;
    debug_assert!(align_of::<T>() <= 16);
    // The bytes are ours alone, zero, and aligned to 16.
    Some(unsafe { core::slice::from_raw_parts_mut(at as *mut T, len) })
}

/// Types for which all bytes zero are a value.
///
/// # Safety
/// Only for such types, aligned to 16 at most.
pub unsafe trait Zeroed: Copy + 'static {}
unsafe impl Zeroed for u8 {}
unsafe impl Zeroed for u32 {}
unsafe impl Zeroed for u64 {}
unsafe impl Zeroed for i64 {}
unsafe impl Zeroed for bool {}
unsafe impl Zeroed for crate::Key {}
unsafe impl Zeroed for (crate::Key, u32) {}

/// Regions by kind, as pol_buffer hands them to the host.
#[derive(Clone, Copy)]
pub struct Region {
    pub at: usize,
    pub bytes: usize,
}

/// The body of pol_buffer.
pub fn buffer(kind: i32, bytes: usize) -> usize {
    if !(0..=abi::BUFFER_PEERS).contains(&kind) {
        return 0;
    }
    let region = state().regions[kind as usize];
    if region.at != 0 && bytes <= region.bytes {
        return region.at;
    }
    match raw(bytes.max(16)) {
        None => 0,
        Some(at) => {
            state().regions[kind as usize] = Region { at, bytes };
            at
        }
    }
}

/// Takes bytes, zeroed, aligned to 16, from the end of the data upwards.
#[cfg(target_arch = "wasm32")]
fn raw(bytes: usize) -> Option<usize> {
    use core::arch::wasm32::{memory_grow, memory_size};
    extern "C" {
        static __heap_base: u8;
    }
    const PAGE: usize = 65536;
    let next = &mut state().next;
    if *next == 0 {
        *next = (unsafe { &__heap_base as *const u8 as usize } + 15) & !15;
    }
    let end = next.checked_add(bytes)?.checked_add(15)? & !15;
    let have = memory_size(0) * PAGE;
    if end > have && memory_grow(0, (end - have + PAGE - 1) / PAGE) == usize::MAX {
        return None;
    }
    let at = *next;
    *next = end;
    Some(at)
}

/// The native stand-in: a fixed arena.
#[cfg(not(target_arch = "wasm32"))]
fn raw(bytes: usize) -> Option<usize> {
    const ARENA: usize = 16 << 20;
    #[repr(align(16))]
    struct Arena([u8; ARENA]);
    static mut BYTES: Arena = Arena([0; ARENA]);
    let next = &mut state().next;
    let end = next.checked_add(bytes)?.checked_add(15)? & !15;
    if end > ARENA {
        return None;
    }
    let at = unsafe { core::ptr::addr_of_mut!(BYTES.0) as usize } + *next;
    *next = end;
    Some(at)
}
