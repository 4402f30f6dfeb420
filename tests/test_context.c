/* Contexts, scopes, errors, statistics, and the lives of handles. */
#include "serial.h"

#include <stdlib.h>
#include <string.h>

TestSuite(context, .init = begin, .fini = finish);

/* ---- contexts ---- */

Test(context, options_are_checked) {
    aj_ctx *other = NULL;
    aj_ctx_opts opts = {.size = 0};
    cr_assert(aj_ctx_create(&other, &opts) == AJ_ERR_ARG && other == NULL);
    opts.size = sizeof opts + 8; /* of a later version */
    cr_assert(aj_ctx_create(&other, &opts) == AJ_ERR_ARG && other == NULL);
    opts = (aj_ctx_opts){.size = sizeof opts, .alloc = counting_alloc};
    cr_assert(aj_ctx_create(&other, &opts) == AJ_ERR_ARG && other == NULL);
    cr_assert(aj_ctx_create(NULL, NULL) == AJ_ERR_ARG);
    cr_assert(aj_ctx_create(&other, NULL) == AJ_OK && other != NULL);
    cr_assert(aj_ctx_status(other) == AJ_OK && strcmp(aj_ctx_error(other), "") == 0);
    cr_assert(aj_ctx_destroy(&other) == AJ_OK && other == NULL);
    cr_assert(aj_ctx_destroy(&other) == AJ_OK);
    cr_assert(aj_ctx_destroy(NULL) == AJ_OK);
}

Test(context, without_pool) {
    aj_ctx *other = NULL;
    aj_ctx_opts opts = {.size = sizeof opts, .disable_pool = 1};
    cr_assert(aj_ctx_create(&other, &opts) == AJ_OK);
    aj_tensor *x = aj_ones(other, AJ_F64, AJ_SHAPE(1000));
    expect_near(aj_item(aj_sum(x)), 1000, 0);
    aj_release(&x);
    cr_assert(aj_ctx_stat(other, AJ_STAT_CACHED_BYTES) == 0);
    cr_assert(aj_ctx_destroy(&other) == AJ_OK);
}

Test(context, two_are_independent) {
    aj_ctx *other = NULL;
    cr_assert(aj_ctx_create(&other, NULL) == AJ_OK);
    aj_raise(other, AJ_ERR_USER, "only there");
    cr_assert(aj_ctx_status(context) == AJ_OK);
    aj_ctx_clear_error(other);
    aj_tensor *here = SCALAR(1), *there = aj_scalar(other, AJ_F64, 2);
    cr_assert(aj_tensor_ctx(there) == other && aj_tensor_ctx(here) == context);
    cr_assert(aj_add(here, there) == NULL);
    expect_error(AJ_ERR_CONTEXT, "add");
    cr_assert(aj_ctx_status(other) == AJ_OK);
    cr_assert(aj_ctx_destroy(&other) == AJ_OK);
}

Test(context, leaks_are_reported_by_operation) {
    aj_ctx *other = NULL;
    counting own = {.fail_after = -1};
    aj_ctx_opts opts = {.size = sizeof opts, .alloc = counting_alloc, .free = counting_free, .alloc_user = &own, .log = keep_log};
    cr_assert(aj_ctx_create(&other, &opts) == AJ_OK);
    aj_keep(aj_ones(other, AJ_F64, AJ_SHAPE(3)));
    aj_param(aj_exp(aj_keep(aj_zeros(other, AJ_F64, AJ_SHAPE(2)))));
    cr_assert(aj_ctx_destroy(&other) == AJ_ERR_LEAK);
    cr_assert(strstr(log_text, "ones") && strstr(log_text, "param"), "the log says: %s", log_text);
    cr_assert(own.live == 0, "what leaked is freed all the same");
}

Test(context, destroy_returns_the_first_error) {
    aj_ctx *other = NULL;
    cr_assert(aj_ctx_create(&other, NULL) == AJ_OK);
    aj_raise(other, AJ_ERR_USER, "kept to the end");
    cr_assert(aj_ctx_destroy(&other) == AJ_ERR_USER);
}

/* ---- errors ---- */

Test(context, the_first_error_stays) {
    cr_assert(aj_raise(context, AJ_ERR_USER, "aj_test: %d came; %s was expected", 7, "8") == AJ_ERR_USER);
    cr_assert(aj_raise(context, AJ_ERR_SHAPE, "later") == AJ_ERR_SHAPE);
    cr_assert(strstr(aj_ctx_error(context), "later") == NULL);
    expect_error(AJ_ERR_USER, "aj_test: 7 came; 8 was expected");
    cr_assert(aj_raise(NULL, AJ_ERR_USER, "nobody") == AJ_ERR_ARG);
    cr_assert(aj_raise(context, AJ_OK, "no error") == AJ_ERR_ARG && aj_ctx_status(context) == AJ_OK);
    cr_assert(aj_ctx_status(NULL) == AJ_ERR_ARG);
    cr_assert(aj_ctx_error(NULL) != NULL);
    aj_ctx_clear_error(NULL);
}

Test(context, long_messages_are_cut_not_overrun) {
    char text[20000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    cr_assert(aj_raise(context, AJ_ERR_USER, "%s", text) == AJ_ERR_USER);
    cr_assert(strstr(aj_ctx_error(context), "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"));
    aj_ctx_clear_error(context);
}

Test(context, status_names) {
    static const char *const names[] = {"AJ_OK",         "AJ_ERR_ARG",   "AJ_ERR_SHAPE",  "AJ_ERR_DTYPE",       "AJ_ERR_CONTEXT",
                                        "AJ_ERR_DEVICE", "AJ_ERR_STATE", "AJ_ERR_MEMORY", "AJ_ERR_UNSUPPORTED", "AJ_ERR_NUMERIC",
                                        "AJ_ERR_MPI",    "AJ_ERR_PEER",  "AJ_ERR_IO",     "AJ_ERR_LEAK",        "AJ_ERR_USER"};
    for (int i = 0; i < 15; i++)
        cr_assert(strcmp(aj_status_name((aj_status)i), names[i]) == 0, "%s", aj_status_name((aj_status)i));
    cr_assert(aj_status_name((aj_status)99) != NULL);
    cr_assert(aj_status_name((aj_status)-1) != NULL);
}

/* ---- scopes ---- */

Test(context, scopes_own_what_is_made_in_them) {
    int64_t before = aj_ctx_stat(context, AJ_STAT_TENSORS), bytes = aj_ctx_stat(context, AJ_STAT_LIVE_BYTES);
    aj_scope *outer = aj_scope_begin(context);
    aj_tensor *a = aj_ones(context, AJ_F64, AJ_SHAPE(10));
    aj_scope *inner = aj_scope_begin(context);
    cr_assert(aj_ctx_stat(context, AJ_STAT_SCOPES) == 2);
    aj_tensor *b = aj_add(a, a), *c = aj_add(b, a);
    cr_assert(aj_scope_return(inner, c) == c);
    cr_assert(aj_scope_return(inner, a) == a, "a belongs to the outer scope and stays there");
    expect_ok(aj_scope_end(inner));
    cr_assert(aj_ctx_stat(context, AJ_STAT_TENSORS) == before + 2);
    expect_values(c, 0, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3);
    aj_keep(c);
    expect_ok(aj_scope_end(outer));
    cr_assert(aj_ctx_stat(context, AJ_STAT_TENSORS) == before + 1 && aj_ctx_stat(context, AJ_STAT_SCOPES) == 0);
    expect_near(aj_item(aj_sum(c)), 30, 0);
    aj_release(&c);
    cr_assert(c == NULL);
    aj_release(&c);
    aj_release(NULL);
    cr_assert(aj_ctx_stat(context, AJ_STAT_LIVE_BYTES) <= bytes + 64, "only the sum's handle is left");
}

Test(context, results_cross_several_scopes) {
    aj_scope *s1 = aj_scope_begin(context), *s2 = aj_scope_begin(context), *s3 = aj_scope_begin(context);
    aj_tensor *t = aj_scope_return(s3, SCALAR(5));
    expect_ok(aj_scope_end(s3));
    t = aj_scope_return(s2, t);
    expect_ok(aj_scope_end(s2));
    expect_near(aj_item(t), 5, 0);
    t = aj_scope_return(s1, t);
    expect_ok(aj_scope_end(s1));
    expect_near(aj_item(t), 5, 0);
    cr_assert(aj_scope_return(NULL, t) == t);
}

Test(context, keep_is_counted) {
    int64_t before = aj_ctx_stat(context, AJ_STAT_TENSORS);
    aj_scope *s = aj_scope_begin(context);
    aj_tensor *t = aj_keep(aj_keep(SCALAR(3))), *same = t;
    expect_ok(aj_scope_end(s));
    aj_release(&t);
    cr_assert(aj_ctx_stat(context, AJ_STAT_TENSORS) == before + 1);
    expect_near(aj_item(same), 3, 0);
    aj_release(&same);
    cr_assert(aj_ctx_stat(context, AJ_STAT_TENSORS) == before);
    cr_assert(aj_keep(NULL) == NULL);
}

Test(context, early_release_from_a_scope) {
    int64_t before = aj_ctx_stat(context, AJ_STAT_TENSORS);
    aj_scope *s = aj_scope_begin(context);
    aj_tensor *a = aj_ones(context, AJ_F64, AJ_SHAPE(4)), *b = aj_exp(a), *c = aj_neg(b);
    aj_release(&a);
    aj_release(&b); /* c still needs their numbers */
    expect_values(c, 1e-15, -exp(1), -exp(1), -exp(1), -exp(1));
    expect_ok(aj_scope_end(s));
    cr_assert(aj_ctx_stat(context, AJ_STAT_TENSORS) == before);
}

Test(context, assign_carries_state) {
    aj_tensor *state = NULL;
    aj_assign(&state, SCALAR(0));
    for (int i = 0; i < 100; i++) {
        aj_scope *s = aj_scope_begin(context);
        cr_assert(aj_assign(&state, aj_add_scalar(state, 1)) == state);
        expect_ok(aj_scope_end(s));
    }
    expect_near(aj_item(state), 100, 0);
    aj_tensor *old = state;
    cr_assert(aj_assign(&state, NULL) == old && state == old);
    cr_assert(aj_assign(&state, state) == old);
    expect_near(aj_item(state), 100, 0);
    aj_release(&state);
}

Test(context, inner_scopes_left_open_are_closed) {
    int64_t before = aj_ctx_stat(context, AJ_STAT_TENSORS);
    aj_scope *outer = aj_scope_begin(context);
    for (int i = 0; i < 5; i++) {
        aj_scope_begin(context);
        SCALAR(i);
    }
    expect_ok(aj_scope_end(outer));
    cr_assert(aj_ctx_stat(context, AJ_STAT_SCOPES) == 0 && aj_ctx_stat(context, AJ_STAT_TENSORS) == before);
}

Test(context, scope_end_returns_errors_since_its_begin) {
    aj_raise(context, AJ_ERR_USER, "before");
    aj_scope *s = aj_scope_begin(context);
    cr_assert(aj_scope_end(s) == AJ_OK, "the error is older than the scope");
    expect_error(AJ_ERR_USER, "before");

    aj_scope *outer = aj_scope_begin(context), *inner = aj_scope_begin(context);
    aj_add(F64((2), 1, 2), F64((3), 1, 2, 3));
    cr_assert(aj_scope_end(inner) == AJ_ERR_SHAPE);
    cr_assert(aj_scope_end(outer) == AJ_ERR_SHAPE);
    expect_error(AJ_ERR_SHAPE, "add");

    outer = aj_scope_begin(context);
    aj_raise(context, AJ_ERR_USER, "dealt with");
    aj_ctx_clear_error(context);
    cr_assert(aj_scope_end(outer) == AJ_OK);
    cr_assert(aj_scope_end(NULL) == AJ_ERR_ARG);
}

Test(context, errors_print_the_names_of_the_open_scopes) {
    aj_scope *outer = aj_scope_begin(context), *inner = aj_scope_begin(context), *closed = aj_scope_begin(context);
    aj_scope_name(outer, "step %d", 512);
    aj_scope_name(inner, "line search %s", "alpha");
    aj_scope_name(closed, "forgotten");
    expect_ok(aj_scope_end(closed));
    aj_raise(context, AJ_ERR_USER, "here");
    cr_assert(strstr(aj_ctx_error(context), "forgotten") == NULL);
    expect_error(AJ_ERR_USER, "here", "step 512", "line search alpha");
    char name[300];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = 0;
    aj_scope_name(inner, "%s", name);
    expect_ok(aj_scope_end(outer));
    aj_scope_name(NULL, "nothing");
}

Test(context, recording_and_no_grad_state_are_restored) {
    aj_scope *s = aj_scope_begin(context);
    expect_ok(aj_record_begin(context));
    expect_ok(aj_no_grad_begin(context));
    cr_assert(!aj_is_recording(context));
    expect_ok(aj_scope_end(s));
    cr_assert(!aj_is_recording(context));
    expect_ok(aj_record_begin(context)); /* so none is open, and no-grad is off */
    cr_assert(aj_is_recording(context));
    s = aj_scope_begin(context);
    expect_ok(aj_no_grad_begin(context));
    expect_ok(aj_no_grad_begin(context));
    expect_ok(aj_scope_end(s));
    cr_assert(aj_is_recording(context));
    expect_ok(aj_record_end(context));
    cr_assert(aj_no_grad_end(context) == AJ_ERR_STATE);
    expect_error(AJ_ERR_STATE, "no_grad");
}

/* A helper that returns early with its scope open, and the caller that goes on. */
static void helper_that_gives_up(void) {
    aj_scope_begin(context);
    (void)aj_record_begin(context);
    (void)aj_no_grad_begin(context);
}

Test(context, an_early_return_poisons_nobody) {
    aj_scope *s = aj_scope_begin(context);
    helper_that_gives_up();
    expect_ok(aj_scope_end(s));
    aj_tensor *p = aj_param(SCALAR(2));
    expect_ok(aj_record_begin(context));
    expect_ok(aj_backward(context, aj_square(p), NULL));
    expect_near(aj_item(aj_grad(p)), 4, 0);
    aj_release(&p);
}

/* ---- statistics ---- */

Test(context, statistics) {
    cr_assert(aj_ctx_stat(NULL, AJ_STAT_TENSORS) == -1);
    cr_assert(aj_ctx_stat(context, (aj_stat)77) == -1);
    cr_assert(aj_ctx_stat(context, AJ_STAT_REQUESTS) == 0 && aj_ctx_stat(context, AJ_STAT_COMMS) == 0);
    int64_t bytes = aj_ctx_stat(context, AJ_STAT_LIVE_BYTES), storages = aj_ctx_stat(context, AJ_STAT_STORAGES);
    aj_scope *s = aj_scope_begin(context);
    double data[1000] = {0};
    aj_tensor *x = aj_from_data(context, AJ_F64, AJ_SHAPE(1000), data);
    aj_tensor *part = aj_slice(x, 0, 0, 10, 1);
    expect_ok(aj_eval(part));
    cr_assert(aj_ctx_stat(context, AJ_STAT_LIVE_BYTES) >= bytes + 8000);
    cr_assert(aj_ctx_stat(context, AJ_STAT_LIVE_BYTES) < bytes + 9000, "a view shares its storage");
    cr_assert(aj_ctx_stat(context, AJ_STAT_STORAGES) == storages + 1);
    expect_ok(aj_scope_end(s));
    cr_assert(aj_ctx_stat(context, AJ_STAT_LIVE_BYTES) == bytes && aj_ctx_stat(context, AJ_STAT_STORAGES) == storages);
    cr_assert(aj_ctx_stat(context, AJ_STAT_PEAK_BYTES) >= bytes + 8000);
    cr_assert(aj_ctx_stat(context, AJ_STAT_ALLOCATIONS) > 0);
    aj_tensor *p = aj_param(SCALAR(1));
    expect_ok(aj_record_begin(context));
    aj_exp(aj_exp(p));
    cr_assert(aj_ctx_stat(context, AJ_STAT_NODES) >= 2);
    expect_ok(aj_record_end(context));
    aj_release(&p);
}

/* After a warm-up the pool serves every step: the allocator is not called again. */
Test(context, the_pool_is_reused) {
    int64_t calls = 0;
    for (int i = 0; i < 20; i++) {
        aj_scope *s = aj_scope_begin(context);
        aj_tensor *x = aj_uniform(context, AJ_F64, AJ_SHAPE(100, 100), 3);
        expect_ok(aj_eval(aj_exp(aj_matmul(x, x))));
        expect_ok(aj_scope_end(s));
        if (i == 9)
            calls = aj_ctx_stat(context, AJ_STAT_ALLOCATIONS);
    }
    cr_assert(is_watched() || aj_ctx_stat(context, AJ_STAT_ALLOCATIONS) == calls); /* the pool stands aside for sanitizers */
}
