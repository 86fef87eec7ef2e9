//! One loop, three builds.
//!
//! `vectorised! { fn name<S>(arguments) { body } }` defines a generic function whose body is compiled for AVX-512, for AVX2 with
//! fused multiply-add and for the baseline, and which runs the widest one the machine has. The body must be self-contained loops
//! and calls of `#[inline(always)]` functions: only what is inlined into it is compiled for the wider instructions.

/// Instruction sets, widest first.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum InstructionSet {
    /// AVX-512 with the byte, word and quadword parts.
    #[cfg(target_arch = "x86_64")]
    Wide,
    /// AVX2 with fused multiply-add.
    #[cfg(target_arch = "x86_64")]
    Middle,
    /// What the target always has.
    Baseline,
}

impl InstructionSet {
    /// Whether vectors are of 64 bytes.
    pub(crate) fn is_widest(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        return self == Self::Wide;
        #[cfg(not(target_arch = "x86_64"))]
        false
    }
}

/// The widest instruction set of this machine. The standard library remembers the answer after the first question.
#[inline]
pub(crate) fn level() -> InstructionSet {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("fma")
        {
            return InstructionSet::Wide;
        }
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            return InstructionSet::Middle;
        }
    }
    InstructionSet::Baseline
}

/// The vector instructions that kernels use on this machine: `avx512`, `avx2` or `none`. Sums are rounded differently with each.
pub fn vector_instructions() -> &'static str {
    match level() {
        #[cfg(target_arch = "x86_64")]
        InstructionSet::Wide => "avx512",
        #[cfg(target_arch = "x86_64")]
        InstructionSet::Middle => "avx2",
        InstructionSet::Baseline => "none",
    }
}

macro_rules! vectorised {
    ($($(#[$meta:meta])* $vis:vis fn $name:ident<$scalar:ident $(, const $size:ident: usize)?>
        ($($argument:ident: $type:ty),* $(,)?) $(-> $result:ty)? $body:block)*) => {$(
        $(#[$meta])*
        #[allow(clippy::too_many_arguments, reason = "a kernel takes its slices and extents one by one")]
        $vis fn $name<$scalar: $crate::Scalar $(, const $size: usize)?>($($argument: $type),*) $(-> $result)? {
            #[inline(always)]
            fn body<$scalar: $crate::Scalar $(, const $size: usize)?>($($argument: $type),*) $(-> $result)? $body

            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")]
                fn wide<$scalar: $crate::Scalar $(, const $size: usize)?>($($argument: $type),*) $(-> $result)? {
                    body::<$scalar $(, $size)?>($($argument),*)
                }
                #[target_feature(enable = "avx2,fma")]
                fn middle<$scalar: $crate::Scalar $(, const $size: usize)?>($($argument: $type),*) $(-> $result)? {
                    body::<$scalar $(, $size)?>($($argument),*)
                }
                #[expect(unsafe_code, reason = "a function built for more instructions than the target promises")]
                match $crate::kernels::vectorised::level() {
                    // SAFETY: `level` found every feature that the function is built with on this machine.
                    $crate::kernels::vectorised::InstructionSet::Wide => {
                        return unsafe { wide::<$scalar $(, $size)?>($($argument),*) };
                    }
                    // SAFETY: as above.
                    $crate::kernels::vectorised::InstructionSet::Middle => {
                        return unsafe { middle::<$scalar $(, $size)?>($($argument),*) };
                    }
                    $crate::kernels::vectorised::InstructionSet::Baseline => {}
                }
            }
            body::<$scalar $(, $size)?>($($argument),*)
        }
    )*};
}
