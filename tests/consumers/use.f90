! A Fortran program against the installed library, through ISO_C_BINDING: the gradients through aj_allreduce and a ring, known in closed
! form. A C handle of MPI is an integer in MPICH, equal to the Fortran one.
module adjoin
    use, intrinsic :: iso_c_binding
    implicit none

    integer(c_int), parameter :: AJ_OK = 0, AJ_F64 = 0

    interface
        integer(c_int) function aj_ctx_create(ctx, opts) bind(c)
            import :: c_int, c_ptr
            type(c_ptr), intent(out) :: ctx
            type(c_ptr), value :: opts
        end function
        integer(c_int) function aj_ctx_destroy(ctx) bind(c)
            import :: c_int, c_ptr
            type(c_ptr), intent(inout) :: ctx
        end function
        integer(c_int) function aj_ctx_status(ctx) bind(c)
            import :: c_int, c_ptr
            type(c_ptr), value :: ctx
        end function
        type(c_ptr) function aj_comm_create(ctx, comm) bind(c)
            import :: c_int, c_ptr
            type(c_ptr), value :: ctx
            integer(c_int), value :: comm
        end function
        subroutine aj_comm_destroy(comm) bind(c)
            import :: c_ptr
            type(c_ptr), intent(inout) :: comm
        end subroutine
        integer(c_int) function aj_comm_rank(comm) bind(c)
            import :: c_int, c_ptr
            type(c_ptr), value :: comm
        end function
        integer(c_int) function aj_comm_size(comm) bind(c)
            import :: c_int, c_ptr
            type(c_ptr), value :: comm
        end function
        type(c_ptr) function aj_from_data(ctx, dtype, ndim, shape, data) bind(c)
            import :: c_double, c_int, c_int64_t, c_ptr
            type(c_ptr), value :: ctx
            integer(c_int), value :: dtype, ndim
            integer(c_int64_t), intent(in) :: shape(*)
            real(c_double), intent(in) :: data(*)
        end function
        type(c_ptr) function aj_param(x) bind(c)
            import :: c_ptr
            type(c_ptr), value :: x
        end function
        type(c_ptr) function aj_grad(param) bind(c)
            import :: c_ptr
            type(c_ptr), value :: param
        end function
        integer(c_int) function aj_record_begin(ctx) bind(c)
            import :: c_int, c_ptr
            type(c_ptr), value :: ctx
        end function
        integer(c_int) function aj_backward(ctx, root, seed) bind(c)
            import :: c_int, c_ptr
            type(c_ptr), value :: ctx, root, seed
        end function
        type(c_ptr) function aj_allreduce(x, op, comm) bind(c)
            import :: c_int, c_ptr
            type(c_ptr), value :: x, comm
            integer(c_int), value :: op
        end function
        type(c_ptr) function aj_isend(x, dest, tag, comm) bind(c)
            import :: c_int, c_ptr
            type(c_ptr), value :: x, comm
            integer(c_int), value :: dest, tag
        end function
        type(c_ptr) function aj_irecv(buffer, source, tag, comm) bind(c)
            import :: c_int, c_ptr
            type(c_ptr), value :: buffer, comm
            integer(c_int), value :: source, tag
        end function
        type(c_ptr) function aj_wait(request) bind(c)
            import :: c_ptr
            type(c_ptr), value :: request
        end function
        type(c_ptr) function aj_square(x) bind(c)
            import :: c_ptr
            type(c_ptr), value :: x
        end function
        type(c_ptr) function aj_mul(a, b) bind(c)
            import :: c_ptr
            type(c_ptr), value :: a, b
        end function
        integer(c_int) function aj_read(t, out, bytes) bind(c)
            import :: c_double, c_int, c_ptr, c_size_t
            type(c_ptr), value :: t
            real(c_double), intent(out) :: out(*)
            integer(c_size_t), value :: bytes
        end function
        subroutine aj_release(t) bind(c)
            import :: c_ptr
            type(c_ptr), intent(inout) :: t
        end subroutine
    end interface
end module

program use_adjoin
    use adjoin
    use mpi, only: MPI_COMM_WORLD, MPI_SUM
    implicit none

    interface
        integer(c_int) function c_mpi_init(argc, argv) bind(c, name='MPI_Init')
            import :: c_int, c_ptr
            type(c_ptr), value :: argc, argv
        end function
        integer(c_int) function c_mpi_finalize() bind(c, name='MPI_Finalize')
            import :: c_int
        end function
    end interface

    type(c_ptr) :: ctx, world
    integer(c_int) :: status
    logical :: good = .true.

    status = c_mpi_init(c_null_ptr, c_null_ptr)
    if (aj_ctx_create(ctx, c_null_ptr) /= AJ_OK) error stop 'use.f90: no context'
    world = aj_comm_create(ctx, MPI_COMM_WORLD)
    call through_allreduce()
    call through_ring()
    good = good .and. aj_ctx_status(ctx) == AJ_OK
    call aj_comm_destroy(world)
    good = good .and. aj_ctx_destroy(ctx) == AJ_OK
    status = c_mpi_finalize()
    if (.not. good) error stop 1

contains

    ! y = the sum over ranks of x; every rank's sum of y^2 counts, so the gradient is 2 S y.
    subroutine through_allreduce()
        type(c_ptr) :: x, y
        integer :: ranks
        ranks = aj_comm_size(world)
        x = aj_param(vector([1.0_c_double + aj_comm_rank(world), 4.0_c_double]))
        status = aj_record_begin(ctx)
        y = aj_square(aj_allreduce(x, MPI_SUM, world))
        status = aj_backward(ctx, y, c_null_ptr)
        call expect('gradient through aj_allreduce', aj_grad(x), 2.0_c_double * ranks * &
                    [real(ranks * (ranks + 1) / 2, c_double), 4.0_c_double * ranks])
        call aj_release(x)
    end subroutine

    ! Each rank sends a to the right; b = a times what came from the left: the gradient is the sum of both neighbours' values.
    subroutine through_ring()
        type(c_ptr) :: a, b, received, send, sent
        integer(c_int) :: left, ranks, right
        ranks = aj_comm_size(world)
        right = mod(aj_comm_rank(world) + 1, ranks)
        left = mod(aj_comm_rank(world) + ranks - 1, ranks)
        a = aj_param(vector([1.0_c_double + aj_comm_rank(world)]))
        status = aj_record_begin(ctx)
        received = aj_irecv(vector([0.0_c_double]), left, 1, world)
        send = aj_isend(a, right, 1, world)
        received = aj_wait(received)
        sent = aj_wait(send)
        b = aj_mul(sent, received)
        status = aj_backward(ctx, b, c_null_ptr)
        call expect('product in the ring', b, [(1.0_c_double + aj_comm_rank(world)) * (1 + left)])
        call expect('gradient through the ring', aj_grad(a), [2.0_c_double + left + right])
        call aj_release(a)
    end subroutine

    type(c_ptr) function vector(values)
        real(c_double), intent(in) :: values(:)
        vector = aj_from_data(ctx, AJ_F64, 1, [size(values, kind=c_int64_t)], values)
    end function

    subroutine expect(what, t, expected)
        character(*), intent(in) :: what
        type(c_ptr), intent(in) :: t
        real(c_double), intent(in) :: expected(:)
        real(c_double) :: got(size(expected))
        got = 0
        status = aj_read(t, got, int(8 * size(got), c_size_t))
        if (status == AJ_OK .and. all(abs(got - expected) <= 1e-12_c_double * abs(expected))) return
        print *, 'use.f90: ', what, ' is', got, ' instead of', expected
        good = .false.
    end subroutine
end program
