//! Write a scheduling policy in Rust: `no_std`, no allocator, no allocation while deciding.
//!
//! ```ignore
//! #![no_std]
//! use pol::{policy, Config, Error, Out, Policy, Step};
//!
//! struct Mine;
//!
//! impl Policy for Mine {
//!     const NAME: &'static str = "mine";
//!     const VERSION: &'static str = "1.0.0";
//!     fn new(_config: &mut Config, _slots: usize) -> Result<Self, Error> { Ok(Mine) }
//!     fn decide(&mut self, step: &Step, out: &mut Out) -> Result<(), Error> { Ok(()) }
//! }
//!
//! policy!(Mine);
//! ```
//!
//! `new` runs once: it reads settings and takes memory ([`take`], [`Order::new`], [`Top::new`]).
//! `decide` runs once a step. What the fields mean, and what the host checks, stands in SPEC.md.
//! Compiled for anything but wasm32 the same code runs natively, so that `decide` can be tested:
//! build a [`Step`] with [`Step::of`].
//!
//! Needs Rust 1.63.
#![no_std]

pub mod abi;
mod chunks;
mod config;
mod counters;
mod guest;
mod memory;
mod order;
mod pages;
mod step;
#[cfg(test)]
mod tests;
mod top;

pub use abi::{Decision, Descriptor, Event, Header, Peer, Record, Tenant};
pub use chunks::{chunk_within, Chunks};
pub use config::Config;
pub use counters::Counters;
pub use guest::{granted, log, log_level};
pub use memory::take;
pub use order::{Key, Order};
pub use pages::Pages;
pub use step::{Out, Step};
pub use top::Top;

#[doc(hidden)]
pub use guest::{describe, last_error, load, observe, panicked, save, start, step, Running};
#[doc(hidden)]
pub use memory::buffer;

/// Why a policy cannot go on: an error code of the ABI, and a message for the host's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error {
    pub code: i32,
    pub why: &'static str,
}

impl Error {
    pub const fn new(code: i32, why: &'static str) -> Error {
        Error { code, why }
    }
}

/// A scheduling policy.
pub trait Policy: Sized {
    const NAME: &'static str;
    const VERSION: &'static str;
    /// Descriptor flags; a policy that follows the changed list, selects and sets chunk lengths.
    const FLAGS: u32 = abi::DESC_WANTS_CHANGED | abi::DESC_SELECTS | abi::DESC_SETS_CHUNKS;
    /// Capabilities without which it must not be loaded.
    const CAPS_REQUIRED: u64 = 0;
    /// Version of what [`State::save`] writes; 0: nothing is saved.
    const STATE_VERSION: u16 = 0;
    /// Capabilities it uses when it gets them.
    const CAPS_OPTIONAL: u64 = abi::CAP_CHUNK_LENGTHS | abi::CAP_LOG;

    /// Reads the settings and takes memory for a table of this many slots.
    fn new(config: &mut Config, slots: usize) -> Result<Self, Error>;

    /// Decides one step: the first decision is the most important.
    fn decide(&mut self, step: &Step, out: &mut Out) -> Result<(), Error>;
}

/// A policy that hears what became of requests: tokens, ends, preemptions. Registered by
/// [`policy_observes!`] beside the registration line; it names [`abi::CAP_EVENTS`].
pub trait Observe: Policy {
    /// What happened since the last step, before the next is decided.
    fn observe(&mut self, events: &[Event]) -> Result<(), Error>;
}

/// A policy whose state is handed to the next copy of it when the operator swaps: with other settings, or
/// in a newer version. Registered by [`policy_with_state!`]; it names [`Policy::STATE_VERSION`] and
/// [`abi::CAP_STATE`].
pub trait State: Policy {
    /// Writes the state and returns its bytes. When there are more than fit, nothing needs to be
    /// written: it is asked again with more room.
    fn save(&self, to: &mut [u8]) -> usize;

    /// Takes up what an earlier copy saved, in that version; before the first step. After an error this
    /// one starts fresh.
    fn load(&mut self, from: &[u8], version: u16) -> Result<(), Error>;
}

/// Beside the registration line of a policy that is also an [`Observe`].
#[macro_export]
macro_rules! policy_observes {
    ($policy:ty) => {
        #[cfg_attr(target_arch = "wasm32", no_mangle)]
        pub extern "C" fn pol_observe(n: u32) -> i32 {
            unsafe { $crate::observe(&mut *core::ptr::addr_of_mut!(POL_RUNNING), n) }
        }
    };
}

/// The registration line of a policy that is also a [`State`].
#[macro_export]
macro_rules! policy_with_state {
    ($policy:ty) => {
        $crate::policy!($policy);

        #[cfg_attr(target_arch = "wasm32", no_mangle)]
        pub extern "C" fn pol_save(cap: u32) -> i32 {
            unsafe { $crate::save(&mut *core::ptr::addr_of_mut!(POL_RUNNING), cap) }
        }

        #[cfg_attr(target_arch = "wasm32", no_mangle)]
        pub extern "C" fn pol_load(len: u32, version: u32) -> i32 {
            unsafe { $crate::load(&mut *core::ptr::addr_of_mut!(POL_RUNNING), len, version) }
        }
    };
}

/// The one registration line: makes a type that is a [`Policy`] the module's policy.
#[macro_export]
macro_rules! policy {
    ($policy:ty) => {
        static mut POL_RUNNING: $crate::Running<$policy> = $crate::Running::NONE;

        #[cfg_attr(target_arch = "wasm32", no_mangle)]
        pub extern "C" fn pol_abi_v1() -> usize {
            $crate::describe::<$policy>()
        }

        #[cfg_attr(target_arch = "wasm32", no_mangle)]
        pub extern "C" fn pol_buffer(kind: i32, bytes: u32) -> usize {
            $crate::buffer(kind, bytes as usize)
        }

        #[cfg_attr(target_arch = "wasm32", no_mangle)]
        pub extern "C" fn pol_init(len: i32) -> i32 {
            // Calls never overlap, so that there is one reference at a time.
            unsafe { $crate::start(&mut *core::ptr::addr_of_mut!(POL_RUNNING), len) }
        }

        #[cfg_attr(target_arch = "wasm32", no_mangle)]
        pub unsafe extern "C" fn pol_decide(header: usize) -> i32 {
            $crate::step(&mut *core::ptr::addr_of_mut!(POL_RUNNING), header)
        }

        #[cfg_attr(target_arch = "wasm32", no_mangle)]
        pub extern "C" fn pol_last_error() -> u64 {
            $crate::last_error()
        }

        #[cfg(target_arch = "wasm32")]
        #[panic_handler]
        fn pol_panic(info: &core::panic::PanicInfo) -> ! {
            $crate::panicked(info)
        }
    };
}
