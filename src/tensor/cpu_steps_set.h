/* All loops for one instruction set, SET, and the table of them. No include guard: included once per instruction set. */

#define T double
#define TAG PASTE(f64, SET)
#define W double
#define M(function) function
#define V(function) aji_##function
#include "tensor/cpu_steps_dtype.h"

#define T float
#define TAG PASTE(f32, SET)
#define W float
#define M(function) function##f
#define V(function) aji_##function##f
#include "tensor/cpu_steps_dtype.h"

#define T int64_t
#define TAG PASTE(i64, SET)
#define W wide
#define LOW INT64_MIN
#define HIGH INT64_MAX
#include "tensor/cpu_steps_dtype.h"

#define T int32_t
#define TAG PASTE(i32, SET)
#define W int64_t
#define LOW INT32_MIN
#define HIGH INT32_MAX
#include "tensor/cpu_steps_dtype.h"

#define T uint8_t
#define TAG PASTE(u8, SET)
#define W int32_t
#define LOW 0
#define HIGH UINT8_MAX
#include "tensor/cpu_steps_dtype.h"

#define IN_SET(name) PASTE(name, SET)
#define FLOATS(name) [AJ_F64] = IN_SET(name##_f64), [AJ_F32] = IN_SET(name##_f32)
#define ALL(name) FLOATS(name), [AJ_I64] = IN_SET(name##_i64), [AJ_I32] = IN_SET(name##_i32), [AJ_U8] = IN_SET(name##_u8)

static const struct kernel_set IN_SET(set) = {
    .steps =
        {
#define AJI_UNARY(name, formula) [AJI_STEP_##name] = {ALL(name)},
#define AJI_FLOAT_UNARY(name, formula) [AJI_STEP_##name] = {FLOATS(name)},
#define AJI_FLOAT_TRIG(name, function) [AJI_STEP_##name] = {FLOATS(name)},
#define AJI_BINARY(name, formula) [AJI_STEP_##name] = {ALL(name)},
#define AJI_FLOAT_BINARY(name, formula) [AJI_STEP_##name] = {FLOATS(name)},
#define AJI_TERNARY(name, formula) [AJI_STEP_##name] = {ALL(name)},
#define AJI_COMPARE(name, formula) [AJI_STEP_##name] = {ALL(name)},
#define AJI_IMMEDIATE(name, formula) [AJI_STEP_##name] = {ALL(name)},
#define AJI_BINARY_IMMEDIATE(name, formula) [AJI_STEP_##name] = {ALL(name)},
#define AJI_FLOAT_IMMEDIATE(name, formula) [AJI_STEP_##name] = {FLOATS(name)},
#include "tensor/steps.def"
            [AJI_STEP_WHERE] = {ALL(WHERE)},
        },
    .casts =
        {
            [AJ_F64] = {ALL(CAST_f64)},
            [AJ_F32] = {ALL(CAST_f32)},
            [AJ_I64] = {ALL(CAST_i64)},
            [AJ_I32] = {ALL(CAST_i32)},
            [AJ_U8] = {ALL(CAST_u8)},
        },
};

#undef IN_SET
#undef FLOATS
#undef ALL
