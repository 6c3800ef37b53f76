; kernels.c sha256 0eec77b30d8f8977b7b363b194c48490c14096baa1c3ef8f86d62dbf1f26c01d

%struct.Batch = type { i32, i32, i32, i32, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, i32, ptr }
%struct.Model = type { i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, float, float, ptr, ptr, ptr, ptr, ptr, ptr }
%struct.Layer = type { ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr }
%struct.Linear = type { ptr, ptr, ptr, ptr, i64, i64, i32, i32, i32, i32 }
%struct.Head = type { ptr, ptr, i32, i32 }
%struct.Place = type { i64, i64 }
%struct.Fetch = type { ptr, i64 }
%struct.Path = type { ptr, i32, i32, ptr, ptr }

; Function Attrs: nounwind
define dso_local void @outrider_forward(ptr noundef %0, ptr noundef %1, i32 noundef %2) #0 {
  %4 = alloca ptr, align 8
  %5 = alloca ptr, align 8
  %6 = alloca i32, align 4
  %7 = alloca i32, align 4
  %8 = alloca i32, align 4
  store ptr %0, ptr %4, align 8, !tbaa !4
  store ptr %1, ptr %5, align 8, !tbaa !4
  store i32 %2, ptr %6, align 4, !tbaa !8
  call void @llvm.lifetime.start.p0(i64 4, ptr %7) #10
  %9 = load i32, ptr %6, align 4, !tbaa !8
  store i32 %9, ptr %7, align 4, !tbaa !8
  br label %10

10:                                               ; preds = %37, %3
  %11 = load i32, ptr %7, align 4, !tbaa !8
  %12 = load ptr, ptr %5, align 8, !tbaa !4
  %13 = getelementptr inbounds %struct.Batch, ptr %12, i32 0, i32 0
  %14 = load i32, ptr %13, align 8, !tbaa !10
  %15 = icmp slt i32 %11, %14
  br i1 %15, label %17, label %16

16:                                               ; preds = %10
  call void @llvm.lifetime.end.p0(i64 4, ptr %7) #10
  br label %43

17:                                               ; preds = %10
  %18 = load ptr, ptr %4, align 8, !tbaa !4
  %19 = load ptr, ptr %5, align 8, !tbaa !4
  %20 = getelementptr inbounds %struct.Batch, ptr %19, i32 0, i32 4
  %21 = load ptr, ptr %20, align 8, !tbaa !12
  %22 = load i32, ptr %7, align 4, !tbaa !8
  %23 = sext i32 %22 to i64
  %24 = getelementptr inbounds i32, ptr %21, i64 %23
  %25 = load i32, ptr %24, align 4, !tbaa !8
  %26 = load ptr, ptr %5, align 8, !tbaa !4
  %27 = getelementptr inbounds %struct.Batch, ptr %26, i32 0, i32 10
  %28 = load ptr, ptr %27, align 8, !tbaa !13
  %29 = load i32, ptr %7, align 4, !tbaa !8
  %30 = sext i32 %29 to i64
  %31 = load ptr, ptr %4, align 8, !tbaa !4
  %32 = getelementptr inbounds %struct.Model, ptr %31, i32 0, i32 1
  %33 = load i32, ptr %32, align 4, !tbaa !14
  %34 = sext i32 %33 to i64
  %35 = mul nsw i64 %30, %34
  %36 = getelementptr inbounds float, ptr %28, i64 %35
  call void @embed_row(ptr noundef %18, i32 noundef %25, ptr noundef %36)
  br label %37

37:                                               ; preds = %17
  %38 = load ptr, ptr %5, align 8, !tbaa !4
  %39 = getelementptr inbounds %struct.Batch, ptr %38, i32 0, i32 3
  %40 = load i32, ptr %39, align 4, !tbaa !17
  %41 = load i32, ptr %7, align 4, !tbaa !8
  %42 = add nsw i32 %41, %40
  store i32 %42, ptr %7, align 4, !tbaa !8
  br label %10, !llvm.loop !18

43:                                               ; preds = %16
  %44 = load ptr, ptr %5, align 8, !tbaa !4
  call void @barrier_wait(ptr noundef %44)
  call void @llvm.lifetime.start.p0(i64 4, ptr %8) #10
  store i32 0, ptr %8, align 4, !tbaa !8
  br label %45

45:                                               ; preds = %79, %43
  %46 = load i32, ptr %8, align 4, !tbaa !8
  %47 = load ptr, ptr %4, align 8, !tbaa !4
  %48 = getelementptr inbounds %struct.Model, ptr %47, i32 0, i32 0
  %49 = load i32, ptr %48, align 8, !tbaa !20
  %50 = icmp slt i32 %46, %49
  br i1 %50, label %52, label %51

51:                                               ; preds = %45
  call void @llvm.lifetime.end.p0(i64 4, ptr %8) #10
  br label %82

52:                                               ; preds = %45
  %53 = load ptr, ptr %4, align 8, !tbaa !4
  %54 = load ptr, ptr %5, align 8, !tbaa !4
  %55 = load i32, ptr %8, align 4, !tbaa !8
  %56 = load i32, ptr %6, align 4, !tbaa !8
  call void @keep_features(ptr noundef %53, ptr noundef %54, i32 noundef %55, i32 noundef %56)
  %57 = load ptr, ptr %4, align 8, !tbaa !4
  %58 = load ptr, ptr %4, align 8, !tbaa !4
  %59 = getelementptr inbounds %struct.Model, ptr %58, i32 0, i32 19
  %60 = load ptr, ptr %59, align 8, !tbaa !21
  %61 = load i32, ptr %8, align 4, !tbaa !8
  %62 = sext i32 %61 to i64
  %63 = getelementptr inbounds %struct.Layer, ptr %60, i64 %62
  %64 = load ptr, ptr %5, align 8, !tbaa !4
  %65 = load i32, ptr %6, align 4, !tbaa !8
  %66 = load i32, ptr %8, align 4, !tbaa !8
  %67 = mul nsw i32 %66, 8
  call void @attention_layer(ptr noundef %57, ptr noundef %63, ptr noundef %64, i32 noundef %65, i32 noundef %67)
  %68 = load ptr, ptr %4, align 8, !tbaa !4
  %69 = load ptr, ptr %4, align 8, !tbaa !4
  %70 = getelementptr inbounds %struct.Model, ptr %69, i32 0, i32 19
  %71 = load ptr, ptr %70, align 8, !tbaa !21
  %72 = load i32, ptr %8, align 4, !tbaa !8
  %73 = sext i32 %72 to i64
  %74 = getelementptr inbounds %struct.Layer, ptr %71, i64 %73
  %75 = load ptr, ptr %5, align 8, !tbaa !4
  %76 = load i32, ptr %6, align 4, !tbaa !8
  %77 = load i32, ptr %8, align 4, !tbaa !8
  %78 = mul nsw i32 %77, 8
  call void @mlp_layer(ptr noundef %68, ptr noundef %74, ptr noundef %75, i32 noundef %76, i32 noundef %78)
  br label %79

79:                                               ; preds = %52
  %80 = load i32, ptr %8, align 4, !tbaa !8
  %81 = add nsw i32 %80, 1
  store i32 %81, ptr %8, align 4, !tbaa !8
  br label %45, !llvm.loop !22

82:                                               ; preds = %51
  %83 = load ptr, ptr %4, align 8, !tbaa !4
  %84 = load ptr, ptr %5, align 8, !tbaa !4
  %85 = load ptr, ptr %4, align 8, !tbaa !4
  %86 = getelementptr inbounds %struct.Model, ptr %85, i32 0, i32 0
  %87 = load i32, ptr %86, align 8, !tbaa !20
  %88 = load i32, ptr %6, align 4, !tbaa !8
  call void @keep_features(ptr noundef %83, ptr noundef %84, i32 noundef %87, i32 noundef %88)
  %89 = load ptr, ptr %5, align 8, !tbaa !4
  %90 = getelementptr inbounds %struct.Batch, ptr %89, i32 0, i32 1
  %91 = load i32, ptr %90, align 4, !tbaa !23
  %92 = icmp ne i32 %91, 0
  br i1 %92, label %93, label %101

93:                                               ; preds = %82
  %94 = load ptr, ptr %4, align 8, !tbaa !4
  %95 = load ptr, ptr %5, align 8, !tbaa !4
  %96 = load i32, ptr %6, align 4, !tbaa !8
  %97 = load ptr, ptr %4, align 8, !tbaa !4
  %98 = getelementptr inbounds %struct.Model, ptr %97, i32 0, i32 0
  %99 = load i32, ptr %98, align 8, !tbaa !20
  %100 = mul nsw i32 %99, 8
  call void @logits_layer(ptr noundef %94, ptr noundef %95, i32 noundef %96, i32 noundef %100)
  br label %101

101:                                              ; preds = %93, %82
  ret void
}

; Function Attrs: nocallback nofree nosync nounwind willreturn memory(argmem: readwrite)
declare void @llvm.lifetime.start.p0(i64 immarg, ptr nocapture) #1

; Function Attrs: nounwind
define internal void @embed_row(ptr noundef %0, i32 noundef %1, ptr noundef %2) #0 {
  %4 = alloca ptr, align 8
  %5 = alloca i32, align 4
  %6 = alloca ptr, align 8
  %7 = alloca i64, align 8
  %8 = alloca i32, align 4
  %9 = alloca i32, align 4
  %10 = alloca i32, align 4
  %11 = alloca i32, align 4
  store ptr %0, ptr %4, align 8, !tbaa !4
  store i32 %1, ptr %5, align 4, !tbaa !8
  store ptr %2, ptr %6, align 8, !tbaa !4
  call void @llvm.lifetime.start.p0(i64 8, ptr %7) #10
  %12 = load i32, ptr %5, align 4, !tbaa !8
  %13 = sext i32 %12 to i64
  %14 = load ptr, ptr %4, align 8, !tbaa !4
  %15 = getelementptr inbounds %struct.Model, ptr %14, i32 0, i32 1
  %16 = load i32, ptr %15, align 4, !tbaa !14
  %17 = sext i32 %16 to i64
  %18 = mul nsw i64 %13, %17
  store i64 %18, ptr %7, align 8, !tbaa !24
  %19 = load ptr, ptr %4, align 8, !tbaa !4
  %20 = getelementptr inbounds %struct.Model, ptr %19, i32 0, i32 7
  %21 = load i32, ptr %20, align 4, !tbaa !26
  %22 = icmp ne i32 %21, 0
  br i1 %22, label %49, label %23

23:                                               ; preds = %3
  call void @llvm.lifetime.start.p0(i64 4, ptr %8) #10
  store i32 0, ptr %8, align 4, !tbaa !8
  br label %24

24:                                               ; preds = %45, %23
  %25 = load i32, ptr %8, align 4, !tbaa !8
  %26 = load ptr, ptr %4, align 8, !tbaa !4
  %27 = getelementptr inbounds %struct.Model, ptr %26, i32 0, i32 1
  %28 = load i32, ptr %27, align 4, !tbaa !14
  %29 = icmp slt i32 %25, %28
  br i1 %29, label %31, label %30

30:                                               ; preds = %24
  call void @llvm.lifetime.end.p0(i64 4, ptr %8) #10
  br label %48

31:                                               ; preds = %24
  %32 = load ptr, ptr %4, align 8, !tbaa !4
  %33 = getelementptr inbounds %struct.Model, ptr %32, i32 0, i32 14
  %34 = load ptr, ptr %33, align 8, !tbaa !27
  %35 = load i64, ptr %7, align 8, !tbaa !24
  %36 = load i32, ptr %8, align 4, !tbaa !8
  %37 = sext i32 %36 to i64
  %38 = add nsw i64 %35, %37
  %39 = getelementptr inbounds float, ptr %34, i64 %38
  %40 = load float, ptr %39, align 4, !tbaa !28
  %41 = load ptr, ptr %6, align 8, !tbaa !4
  %42 = load i32, ptr %8, align 4, !tbaa !8
  %43 = sext i32 %42 to i64
  %44 = getelementptr inbounds float, ptr %41, i64 %43
  store float %40, ptr %44, align 4, !tbaa !28
  br label %45

45:                                               ; preds = %31
  %46 = load i32, ptr %8, align 4, !tbaa !8
  %47 = add nsw i32 %46, 1
  store i32 %47, ptr %8, align 4, !tbaa !8
  br label %24, !llvm.loop !29

48:                                               ; preds = %30
  store i32 1, ptr %9, align 4
  br label %77

49:                                               ; preds = %3
  call void @llvm.lifetime.start.p0(i64 4, ptr %10) #10
  store i32 0, ptr %10, align 4, !tbaa !8
  br label %50

50:                                               ; preds = %73, %49
  %51 = load i32, ptr %10, align 4, !tbaa !8
  %52 = load ptr, ptr %4, align 8, !tbaa !4
  %53 = getelementptr inbounds %struct.Model, ptr %52, i32 0, i32 1
  %54 = load i32, ptr %53, align 4, !tbaa !14
  %55 = icmp slt i32 %51, %54
  br i1 %55, label %57, label %56

56:                                               ; preds = %50
  store i32 5, ptr %9, align 4
  call void @llvm.lifetime.end.p0(i64 4, ptr %10) #10
  br label %76

57:                                               ; preds = %50
  call void @llvm.lifetime.start.p0(i64 4, ptr %11) #10
  %58 = load ptr, ptr %4, align 8, !tbaa !4
  %59 = getelementptr inbounds %struct.Model, ptr %58, i32 0, i32 14
  %60 = load ptr, ptr %59, align 8, !tbaa !27
  %61 = load i64, ptr %7, align 8, !tbaa !24
  %62 = load i32, ptr %10, align 4, !tbaa !8
  %63 = sext i32 %62 to i64
  %64 = add nsw i64 %61, %63
  %65 = getelementptr inbounds i16, ptr %60, i64 %64
  %66 = load i16, ptr %65, align 2, !tbaa !30
  %67 = zext i16 %66 to i32
  %68 = shl i32 %67, 16
  store i32 %68, ptr %11, align 4, !tbaa !8
  %69 = load ptr, ptr %6, align 8, !tbaa !4
  %70 = load i32, ptr %10, align 4, !tbaa !8
  %71 = sext i32 %70 to i64
  %72 = getelementptr inbounds float, ptr %69, i64 %71
  call void @llvm.memcpy.p0.p0.i64(ptr align 4 %72, ptr align 4 %11, i64 4, i1 false)
  call void @llvm.lifetime.end.p0(i64 4, ptr %11) #10
  br label %73

73:                                               ; preds = %57
  %74 = load i32, ptr %10, align 4, !tbaa !8
  %75 = add nsw i32 %74, 1
  store i32 %75, ptr %10, align 4, !tbaa !8
  br label %50, !llvm.loop !32

76:                                               ; preds = %56
  store i32 0, ptr %9, align 4
  br label %77

77:                                               ; preds = %76, %48
  call void @llvm.lifetime.end.p0(i64 8, ptr %7) #10
  %78 = load i32, ptr %9, align 4
  switch i32 %78, label %80 [
    i32 0, label %79
    i32 1, label %79
  ]

79:                                               ; preds = %77, %77
  ret void

80:                                               ; preds = %77
  unreachable
}

; Function Attrs: nocallback nofree nosync nounwind willreturn memory(argmem: readwrite)
declare void @llvm.lifetime.end.p0(i64 immarg, ptr nocapture) #1

; Function Attrs: nounwind
define internal void @barrier_wait(ptr noundef %0) #0 {
  %2 = alloca ptr, align 8
  %3 = alloca i32, align 4
  %4 = alloca i32, align 4
  %5 = alloca i32, align 4
  %6 = alloca i32, align 4
  %7 = alloca i32, align 4
  %8 = alloca i32, align 4
  %9 = alloca i32, align 4
  %10 = alloca i64, align 8
  %11 = alloca i32, align 4
  store ptr %0, ptr %2, align 8, !tbaa !4
  %12 = load ptr, ptr %2, align 8, !tbaa !4
  %13 = getelementptr inbounds %struct.Batch, ptr %12, i32 0, i32 3
  %14 = load i32, ptr %13, align 4, !tbaa !17
  %15 = icmp eq i32 %14, 1
  br i1 %15, label %16, label %17

16:                                               ; preds = %1
  br label %72

17:                                               ; preds = %1
  call void @llvm.lifetime.start.p0(i64 4, ptr %3) #10
  %18 = load ptr, ptr %2, align 8, !tbaa !4
  %19 = getelementptr inbounds %struct.Batch, ptr %18, i32 0, i32 17
  %20 = load ptr, ptr %19, align 8, !tbaa !33
  %21 = getelementptr inbounds i32, ptr %20, i64 1
  %22 = load atomic i32, ptr %21 acquire, align 4
  store i32 %22, ptr %4, align 4
  %23 = load i32, ptr %4, align 4, !tbaa !8
  store i32 %23, ptr %3, align 4, !tbaa !8
  %24 = load ptr, ptr %2, align 8, !tbaa !4
  %25 = getelementptr inbounds %struct.Batch, ptr %24, i32 0, i32 17
  %26 = load ptr, ptr %25, align 8, !tbaa !33
  %27 = getelementptr inbounds i32, ptr %26, i64 0
  store i32 1, ptr %5, align 4, !tbaa !8
  %28 = load i32, ptr %5, align 4
  %29 = atomicrmw add ptr %27, i32 %28 acq_rel, align 4
  %30 = add i32 %29, %28
  store i32 %30, ptr %6, align 4
  %31 = load i32, ptr %6, align 4, !tbaa !8
  %32 = load ptr, ptr %2, align 8, !tbaa !4
  %33 = getelementptr inbounds %struct.Batch, ptr %32, i32 0, i32 3
  %34 = load i32, ptr %33, align 4, !tbaa !17
  %35 = icmp eq i32 %31, %34
  br i1 %35, label %36, label %49

36:                                               ; preds = %17
  %37 = load ptr, ptr %2, align 8, !tbaa !4
  %38 = getelementptr inbounds %struct.Batch, ptr %37, i32 0, i32 17
  %39 = load ptr, ptr %38, align 8, !tbaa !33
  %40 = getelementptr inbounds i32, ptr %39, i64 0
  store i32 0, ptr %7, align 4, !tbaa !8
  %41 = load i32, ptr %7, align 4
  store atomic i32 %41, ptr %40 monotonic, align 4
  %42 = load ptr, ptr %2, align 8, !tbaa !4
  %43 = getelementptr inbounds %struct.Batch, ptr %42, i32 0, i32 17
  %44 = load ptr, ptr %43, align 8, !tbaa !33
  %45 = getelementptr inbounds i32, ptr %44, i64 1
  %46 = load i32, ptr %3, align 4, !tbaa !8
  %47 = add nsw i32 %46, 1
  store i32 %47, ptr %8, align 4, !tbaa !8
  %48 = load i32, ptr %8, align 4
  store atomic i32 %48, ptr %45 release, align 4
  store i32 1, ptr %9, align 4
  br label %70

49:                                               ; preds = %17
  call void @llvm.lifetime.start.p0(i64 8, ptr %10) #10
  store i64 0, ptr %10, align 8, !tbaa !24
  br label %50

50:                                               ; preds = %66, %49
  %51 = load ptr, ptr %2, align 8, !tbaa !4
  %52 = getelementptr inbounds %struct.Batch, ptr %51, i32 0, i32 17
  %53 = load ptr, ptr %52, align 8, !tbaa !33
  %54 = getelementptr inbounds i32, ptr %53, i64 1
  %55 = load atomic i32, ptr %54 acquire, align 4
  store i32 %55, ptr %11, align 4
  %56 = load i32, ptr %11, align 4, !tbaa !8
  %57 = load i32, ptr %3, align 4, !tbaa !8
  %58 = icmp eq i32 %56, %57
  br i1 %58, label %60, label %59

59:                                               ; preds = %50
  store i32 2, ptr %9, align 4
  call void @llvm.lifetime.end.p0(i64 8, ptr %10) #10
  br label %69

60:                                               ; preds = %50
  %61 = load i64, ptr %10, align 8, !tbaa !24
  %62 = icmp sgt i64 %61, 20000
  br i1 %62, label %63, label %65

63:                                               ; preds = %60
  %64 = call i32 @sched_yield()
  br label %65

65:                                               ; preds = %63, %60
  br label %66

66:                                               ; preds = %65
  %67 = load i64, ptr %10, align 8, !tbaa !24
  %68 = add nsw i64 %67, 1
  store i64 %68, ptr %10, align 8, !tbaa !24
  br label %50, !llvm.loop !34

69:                                               ; preds = %59
  store i32 0, ptr %9, align 4
  br label %70

70:                                               ; preds = %69, %36
  call void @llvm.lifetime.end.p0(i64 4, ptr %3) #10
  %71 = load i32, ptr %9, align 4
  switch i32 %71, label %73 [
    i32 0, label %72
    i32 1, label %72
  ]

72:                                               ; preds = %16, %70, %70
  ret void

73:                                               ; preds = %70
  unreachable
}

; Function Attrs: nounwind
define internal void @keep_features(ptr noundef %0, ptr noundef %1, i32 noundef %2, i32 noundef %3) #0 {
  %5 = alloca ptr, align 8
  %6 = alloca ptr, align 8
  %7 = alloca i32, align 4
  %8 = alloca i32, align 4
  %9 = alloca i32, align 4
  %10 = alloca i32, align 4
  %11 = alloca i32, align 4
  store ptr %0, ptr %5, align 8, !tbaa !4
  store ptr %1, ptr %6, align 8, !tbaa !4
  store i32 %2, ptr %7, align 4, !tbaa !8
  store i32 %3, ptr %8, align 4, !tbaa !8
  call void @llvm.lifetime.start.p0(i64 4, ptr %9) #10
  store i32 0, ptr %9, align 4, !tbaa !8
  br label %12

12:                                               ; preds = %82, %4
  %13 = load i32, ptr %9, align 4, !tbaa !8
  %14 = load ptr, ptr %6, align 8, !tbaa !4
  %15 = getelementptr inbounds %struct.Batch, ptr %14, i32 0, i32 21
  %16 = load i32, ptr %15, align 8, !tbaa !35
  %17 = icmp slt i32 %13, %16
  br i1 %17, label %19, label %18

18:                                               ; preds = %12
  store i32 2, ptr %10, align 4
  call void @llvm.lifetime.end.p0(i64 4, ptr %9) #10
  br label %85

19:                                               ; preds = %12
  %20 = load ptr, ptr %6, align 8, !tbaa !4
  %21 = getelementptr inbounds %struct.Batch, ptr %20, i32 0, i32 19
  %22 = load ptr, ptr %21, align 8, !tbaa !36
  %23 = load i32, ptr %9, align 4, !tbaa !8
  %24 = sext i32 %23 to i64
  %25 = getelementptr inbounds i32, ptr %22, i64 %24
  %26 = load i32, ptr %25, align 4, !tbaa !8
  %27 = load i32, ptr %7, align 4, !tbaa !8
  %28 = icmp ne i32 %26, %27
  br i1 %28, label %29, label %30

29:                                               ; preds = %19
  br label %82

30:                                               ; preds = %19
  call void @llvm.lifetime.start.p0(i64 4, ptr %11) #10
  %31 = load i32, ptr %8, align 4, !tbaa !8
  store i32 %31, ptr %11, align 4, !tbaa !8
  br label %32

32:                                               ; preds = %75, %30
  %33 = load i32, ptr %11, align 4, !tbaa !8
  %34 = load ptr, ptr %6, align 8, !tbaa !4
  %35 = getelementptr inbounds %struct.Batch, ptr %34, i32 0, i32 0
  %36 = load i32, ptr %35, align 8, !tbaa !10
  %37 = icmp slt i32 %33, %36
  br i1 %37, label %39, label %38

38:                                               ; preds = %32
  store i32 5, ptr %10, align 4
  call void @llvm.lifetime.end.p0(i64 4, ptr %11) #10
  br label %81

39:                                               ; preds = %32
  %40 = load ptr, ptr %6, align 8, !tbaa !4
  %41 = getelementptr inbounds %struct.Batch, ptr %40, i32 0, i32 20
  %42 = load ptr, ptr %41, align 8, !tbaa !37
  %43 = load i32, ptr %11, align 4, !tbaa !8
  %44 = sext i32 %43 to i64
  %45 = load ptr, ptr %6, align 8, !tbaa !4
  %46 = getelementptr inbounds %struct.Batch, ptr %45, i32 0, i32 21
  %47 = load i32, ptr %46, align 8, !tbaa !35
  %48 = sext i32 %47 to i64
  %49 = mul nsw i64 %44, %48
  %50 = load i32, ptr %9, align 4, !tbaa !8
  %51 = sext i32 %50 to i64
  %52 = add nsw i64 %49, %51
  %53 = load ptr, ptr %5, align 8, !tbaa !4
  %54 = getelementptr inbounds %struct.Model, ptr %53, i32 0, i32 1
  %55 = load i32, ptr %54, align 4, !tbaa !14
  %56 = sext i32 %55 to i64
  %57 = mul nsw i64 %52, %56
  %58 = getelementptr inbounds float, ptr %42, i64 %57
  %59 = load ptr, ptr %6, align 8, !tbaa !4
  %60 = getelementptr inbounds %struct.Batch, ptr %59, i32 0, i32 10
  %61 = load ptr, ptr %60, align 8, !tbaa !13
  %62 = load i32, ptr %11, align 4, !tbaa !8
  %63 = sext i32 %62 to i64
  %64 = load ptr, ptr %5, align 8, !tbaa !4
  %65 = getelementptr inbounds %struct.Model, ptr %64, i32 0, i32 1
  %66 = load i32, ptr %65, align 4, !tbaa !14
  %67 = sext i32 %66 to i64
  %68 = mul nsw i64 %63, %67
  %69 = getelementptr inbounds float, ptr %61, i64 %68
  %70 = load ptr, ptr %5, align 8, !tbaa !4
  %71 = getelementptr inbounds %struct.Model, ptr %70, i32 0, i32 1
  %72 = load i32, ptr %71, align 4, !tbaa !14
  %73 = sext i32 %72 to i64
  %74 = mul i64 %73, 4
  call void @llvm.memcpy.p0.p0.i64(ptr align 4 %58, ptr align 4 %69, i64 %74, i1 false)
  br label %75

75:                                               ; preds = %39
  %76 = load ptr, ptr %6, align 8, !tbaa !4
  %77 = getelementptr inbounds %struct.Batch, ptr %76, i32 0, i32 3
  %78 = load i32, ptr %77, align 4, !tbaa !17
  %79 = load i32, ptr %11, align 4, !tbaa !8
  %80 = add nsw i32 %79, %78
  store i32 %80, ptr %11, align 4, !tbaa !8
  br label %32, !llvm.loop !38

81:                                               ; preds = %38
  br label %82

82:                                               ; preds = %81, %29
  %83 = load i32, ptr %9, align 4, !tbaa !8
  %84 = add nsw i32 %83, 1
  store i32 %84, ptr %9, align 4, !tbaa !8
  br label %12, !llvm.loop !39

85:                                               ; preds = %18
  ret void
}

; Function Attrs: nounwind
define internal void @attention_layer(ptr noundef %0, ptr noundef %1, ptr noundef %2, i32 noundef %3, i32 noundef %4) #0 {
  %6 = alloca ptr, align 8
  %7 = alloca ptr, align 8
  %8 = alloca ptr, align 8
  %9 = alloca i32, align 4
  %10 = alloca i32, align 4
  store ptr %0, ptr %6, align 8, !tbaa !4
  store ptr %1, ptr %7, align 8, !tbaa !4
  store ptr %2, ptr %8, align 8, !tbaa !4
  store i32 %3, ptr %9, align 4, !tbaa !8
  store i32 %4, ptr %10, align 4, !tbaa !8
  %11 = load ptr, ptr %6, align 8, !tbaa !4
  %12 = load ptr, ptr %8, align 8, !tbaa !4
  %13 = load ptr, ptr %7, align 8, !tbaa !4
  %14 = getelementptr inbounds %struct.Layer, ptr %13, i32 0, i32 0
  %15 = load ptr, ptr %14, align 8, !tbaa !40
  %16 = load i32, ptr %9, align 4, !tbaa !8
  call void @norm_rows(ptr noundef %11, ptr noundef %12, ptr noundef %15, i32 noundef %16)
  %17 = load ptr, ptr %6, align 8, !tbaa !4
  %18 = load ptr, ptr %7, align 8, !tbaa !4
  %19 = load ptr, ptr %8, align 8, !tbaa !4
  %20 = load ptr, ptr %6, align 8, !tbaa !4
  %21 = getelementptr inbounds %struct.Model, ptr %20, i32 0, i32 1
  %22 = load i32, ptr %21, align 4, !tbaa !14
  %23 = load i32, ptr %9, align 4, !tbaa !8
  %24 = load i32, ptr %10, align 4, !tbaa !8
  call void @attention(ptr noundef %17, ptr noundef %18, ptr noundef %19, i32 noundef %22, i32 noundef %23, i32 noundef %24)
  ret void
}

; Function Attrs: nounwind
define internal void @mlp_layer(ptr noundef %0, ptr noundef %1, ptr noundef %2, i32 noundef %3, i32 noundef %4) #0 {
  %6 = alloca ptr, align 8
  %7 = alloca ptr, align 8
  %8 = alloca ptr, align 8
  %9 = alloca i32, align 4
  %10 = alloca i32, align 4
  %11 = alloca i32, align 4
  %12 = alloca %struct.Linear, align 8
  %13 = alloca %struct.Linear, align 8
  store ptr %0, ptr %6, align 8, !tbaa !4
  store ptr %1, ptr %7, align 8, !tbaa !4
  store ptr %2, ptr %8, align 8, !tbaa !4
  store i32 %3, ptr %9, align 4, !tbaa !8
  store i32 %4, ptr %10, align 4, !tbaa !8
  call void @llvm.lifetime.start.p0(i64 4, ptr %11) #10
  %14 = load ptr, ptr %8, align 8, !tbaa !4
  %15 = getelementptr inbounds %struct.Batch, ptr %14, i32 0, i32 0
  %16 = load i32, ptr %15, align 8, !tbaa !10
  store i32 %16, ptr %11, align 4, !tbaa !8
  %17 = load ptr, ptr %6, align 8, !tbaa !4
  %18 = load ptr, ptr %8, align 8, !tbaa !4
  %19 = load ptr, ptr %7, align 8, !tbaa !4
  %20 = getelementptr inbounds %struct.Layer, ptr %19, i32 0, i32 1
  %21 = load ptr, ptr %20, align 8, !tbaa !42
  %22 = load i32, ptr %9, align 4, !tbaa !8
  call void @norm_rows(ptr noundef %17, ptr noundef %18, ptr noundef %21, i32 noundef %22)
  %23 = load ptr, ptr %8, align 8, !tbaa !4
  call void @barrier_wait(ptr noundef %23)
  call void @llvm.lifetime.start.p0(i64 64, ptr %12) #10
  %24 = getelementptr inbounds %struct.Linear, ptr %12, i32 0, i32 0
  %25 = load ptr, ptr %8, align 8, !tbaa !4
  %26 = getelementptr inbounds %struct.Batch, ptr %25, i32 0, i32 11
  %27 = load ptr, ptr %26, align 8, !tbaa !43
  store ptr %27, ptr %24, align 8, !tbaa !44
  %28 = getelementptr inbounds %struct.Linear, ptr %12, i32 0, i32 1
  %29 = load ptr, ptr %8, align 8, !tbaa !4
  %30 = getelementptr inbounds %struct.Batch, ptr %29, i32 0, i32 14
  %31 = load ptr, ptr %30, align 8, !tbaa !46
  store ptr %31, ptr %28, align 8, !tbaa !47
  %32 = getelementptr inbounds %struct.Linear, ptr %12, i32 0, i32 2
  %33 = load ptr, ptr %7, align 8, !tbaa !4
  %34 = getelementptr inbounds %struct.Layer, ptr %33, i32 0, i32 7
  %35 = load ptr, ptr %34, align 8, !tbaa !48
  store ptr %35, ptr %32, align 8, !tbaa !49
  %36 = getelementptr inbounds %struct.Linear, ptr %12, i32 0, i32 3
  store ptr null, ptr %36, align 8, !tbaa !50
  %37 = getelementptr inbounds %struct.Linear, ptr %12, i32 0, i32 4
  %38 = load ptr, ptr %6, align 8, !tbaa !4
  %39 = getelementptr inbounds %struct.Model, ptr %38, i32 0, i32 1
  %40 = load i32, ptr %39, align 4, !tbaa !14
  %41 = sext i32 %40 to i64
  store i64 %41, ptr %37, align 8, !tbaa !51
  %42 = getelementptr inbounds %struct.Linear, ptr %12, i32 0, i32 5
  %43 = load ptr, ptr %6, align 8, !tbaa !4
  %44 = getelementptr inbounds %struct.Model, ptr %43, i32 0, i32 5
  %45 = load i32, ptr %44, align 4, !tbaa !52
  %46 = sext i32 %45 to i64
  store i64 %46, ptr %42, align 8, !tbaa !53
  %47 = getelementptr inbounds %struct.Linear, ptr %12, i32 0, i32 6
  %48 = load i32, ptr %11, align 4, !tbaa !8
  store i32 %48, ptr %47, align 8, !tbaa !54
  %49 = getelementptr inbounds %struct.Linear, ptr %12, i32 0, i32 7
  %50 = load ptr, ptr %6, align 8, !tbaa !4
  %51 = getelementptr inbounds %struct.Model, ptr %50, i32 0, i32 1
  %52 = load i32, ptr %51, align 4, !tbaa !14
  store i32 %52, ptr %49, align 4, !tbaa !55
  %53 = getelementptr inbounds %struct.Linear, ptr %12, i32 0, i32 8
  store i32 2, ptr %53, align 8, !tbaa !56
  %54 = getelementptr inbounds %struct.Linear, ptr %12, i32 0, i32 9
  %55 = load ptr, ptr %6, align 8, !tbaa !4
  %56 = getelementptr inbounds %struct.Model, ptr %55, i32 0, i32 7
  %57 = load i32, ptr %56, align 4, !tbaa !26
  store i32 %57, ptr %54, align 4, !tbaa !57
  %58 = load ptr, ptr %6, align 8, !tbaa !4
  %59 = getelementptr inbounds %struct.Model, ptr %58, i32 0, i32 5
  %60 = load i32, ptr %59, align 4, !tbaa !52
  %61 = sdiv i32 %60, 16
  %62 = load ptr, ptr %8, align 8, !tbaa !4
  %63 = load i32, ptr %10, align 4, !tbaa !8
  %64 = add nsw i32 %63, 3
  call void @linear(ptr noundef %12, i32 noundef %61, ptr noundef %62, i32 noundef %64)
  %65 = load ptr, ptr %8, align 8, !tbaa !4
  call void @barrier_wait(ptr noundef %65)
  call void @llvm.lifetime.start.p0(i64 64, ptr %13) #10
  %66 = getelementptr inbounds %struct.Linear, ptr %13, i32 0, i32 0
  %67 = load ptr, ptr %8, align 8, !tbaa !4
  %68 = getelementptr inbounds %struct.Batch, ptr %67, i32 0, i32 14
  %69 = load ptr, ptr %68, align 8, !tbaa !46
  store ptr %69, ptr %66, align 8, !tbaa !44
  %70 = getelementptr inbounds %struct.Linear, ptr %13, i32 0, i32 1
  %71 = load ptr, ptr %8, align 8, !tbaa !4
  %72 = getelementptr inbounds %struct.Batch, ptr %71, i32 0, i32 10
  %73 = load ptr, ptr %72, align 8, !tbaa !13
  store ptr %73, ptr %70, align 8, !tbaa !47
  %74 = getelementptr inbounds %struct.Linear, ptr %13, i32 0, i32 2
  %75 = load ptr, ptr %7, align 8, !tbaa !4
  %76 = getelementptr inbounds %struct.Layer, ptr %75, i32 0, i32 8
  %77 = load ptr, ptr %76, align 8, !tbaa !58
  store ptr %77, ptr %74, align 8, !tbaa !49
  %78 = getelementptr inbounds %struct.Linear, ptr %13, i32 0, i32 3
  store ptr null, ptr %78, align 8, !tbaa !50
  %79 = getelementptr inbounds %struct.Linear, ptr %13, i32 0, i32 4
  %80 = load ptr, ptr %6, align 8, !tbaa !4
  %81 = getelementptr inbounds %struct.Model, ptr %80, i32 0, i32 5
  %82 = load i32, ptr %81, align 4, !tbaa !52
  %83 = sext i32 %82 to i64
  store i64 %83, ptr %79, align 8, !tbaa !51
  %84 = getelementptr inbounds %struct.Linear, ptr %13, i32 0, i32 5
  %85 = load ptr, ptr %6, align 8, !tbaa !4
  %86 = getelementptr inbounds %struct.Model, ptr %85, i32 0, i32 1
  %87 = load i32, ptr %86, align 4, !tbaa !14
  %88 = sext i32 %87 to i64
  store i64 %88, ptr %84, align 8, !tbaa !53
  %89 = getelementptr inbounds %struct.Linear, ptr %13, i32 0, i32 6
  %90 = load i32, ptr %11, align 4, !tbaa !8
  store i32 %90, ptr %89, align 8, !tbaa !54
  %91 = getelementptr inbounds %struct.Linear, ptr %13, i32 0, i32 7
  %92 = load ptr, ptr %6, align 8, !tbaa !4
  %93 = getelementptr inbounds %struct.Model, ptr %92, i32 0, i32 5
  %94 = load i32, ptr %93, align 4, !tbaa !52
  store i32 %94, ptr %91, align 4, !tbaa !55
  %95 = getelementptr inbounds %struct.Linear, ptr %13, i32 0, i32 8
  store i32 1, ptr %95, align 8, !tbaa !56
  %96 = getelementptr inbounds %struct.Linear, ptr %13, i32 0, i32 9
  %97 = load ptr, ptr %6, align 8, !tbaa !4
  %98 = getelementptr inbounds %struct.Model, ptr %97, i32 0, i32 7
  %99 = load i32, ptr %98, align 4, !tbaa !26
  store i32 %99, ptr %96, align 4, !tbaa !57
  %100 = load ptr, ptr %6, align 8, !tbaa !4
  %101 = getelementptr inbounds %struct.Model, ptr %100, i32 0, i32 1
  %102 = load i32, ptr %101, align 4, !tbaa !14
  %103 = call i32 @panels(i32 noundef %102)
  %104 = load ptr, ptr %8, align 8, !tbaa !4
  %105 = load i32, ptr %10, align 4, !tbaa !8
  %106 = add nsw i32 %105, 4
  call void @linear(ptr noundef %13, i32 noundef %103, ptr noundef %104, i32 noundef %106)
  %107 = load ptr, ptr %8, align 8, !tbaa !4
  call void @barrier_wait(ptr noundef %107)
  call void @llvm.lifetime.end.p0(i64 64, ptr %13) #10
  call void @llvm.lifetime.end.p0(i64 64, ptr %12) #10
  call void @llvm.lifetime.end.p0(i64 4, ptr %11) #10
  ret void
}

; Function Attrs: nounwind
define internal void @logits_layer(ptr noundef %0, ptr noundef %1, i32 noundef %2, i32 noundef %3) #0 {
  %5 = alloca ptr, align 8
  %6 = alloca ptr, align 8
  %7 = alloca i32, align 4
  %8 = alloca i32, align 4
  %9 = alloca i32, align 4
  %10 = alloca i32, align 4
  %11 = alloca i32, align 4
  %12 = alloca %struct.Linear, align 8
  store ptr %0, ptr %5, align 8, !tbaa !4
  store ptr %1, ptr %6, align 8, !tbaa !4
  store i32 %2, ptr %7, align 4, !tbaa !8
  store i32 %3, ptr %8, align 4, !tbaa !8
  call void @llvm.lifetime.start.p0(i64 4, ptr %9) #10
  %13 = load ptr, ptr %6, align 8, !tbaa !4
  %14 = getelementptr inbounds %struct.Batch, ptr %13, i32 0, i32 1
  %15 = load i32, ptr %14, align 4, !tbaa !23
  store i32 %15, ptr %9, align 4, !tbaa !8
  call void @llvm.lifetime.start.p0(i64 4, ptr %10) #10
  %16 = load i32, ptr %7, align 4, !tbaa !8
  store i32 %16, ptr %10, align 4, !tbaa !8
  br label %17

17:                                               ; preds = %60, %4
  %18 = load i32, ptr %10, align 4, !tbaa !8
  %19 = load i32, ptr %9, align 4, !tbaa !8
  %20 = icmp slt i32 %18, %19
  br i1 %20, label %22, label %21

21:                                               ; preds = %17
  call void @llvm.lifetime.end.p0(i64 4, ptr %10) #10
  br label %66

22:                                               ; preds = %17
  %23 = load ptr, ptr %6, align 8, !tbaa !4
  %24 = getelementptr inbounds %struct.Batch, ptr %23, i32 0, i32 10
  %25 = load ptr, ptr %24, align 8, !tbaa !13
  %26 = load ptr, ptr %6, align 8, !tbaa !4
  %27 = getelementptr inbounds %struct.Batch, ptr %26, i32 0, i32 9
  %28 = load ptr, ptr %27, align 8, !tbaa !59
  %29 = load i32, ptr %10, align 4, !tbaa !8
  %30 = sext i32 %29 to i64
  %31 = getelementptr inbounds i32, ptr %28, i64 %30
  %32 = load i32, ptr %31, align 4, !tbaa !8
  %33 = sext i32 %32 to i64
  %34 = load ptr, ptr %5, align 8, !tbaa !4
  %35 = getelementptr inbounds %struct.Model, ptr %34, i32 0, i32 1
  %36 = load i32, ptr %35, align 4, !tbaa !14
  %37 = sext i32 %36 to i64
  %38 = mul nsw i64 %33, %37
  %39 = getelementptr inbounds float, ptr %25, i64 %38
  %40 = load ptr, ptr %5, align 8, !tbaa !4
  %41 = getelementptr inbounds %struct.Model, ptr %40, i32 0, i32 15
  %42 = load ptr, ptr %41, align 8, !tbaa !60
  %43 = load ptr, ptr %5, align 8, !tbaa !4
  %44 = getelementptr inbounds %struct.Model, ptr %43, i32 0, i32 12
  %45 = load float, ptr %44, align 8, !tbaa !61
  %46 = load ptr, ptr %5, align 8, !tbaa !4
  %47 = getelementptr inbounds %struct.Model, ptr %46, i32 0, i32 1
  %48 = load i32, ptr %47, align 4, !tbaa !14
  %49 = load ptr, ptr %6, align 8, !tbaa !4
  %50 = getelementptr inbounds %struct.Batch, ptr %49, i32 0, i32 11
  %51 = load ptr, ptr %50, align 8, !tbaa !43
  %52 = load i32, ptr %10, align 4, !tbaa !8
  %53 = sext i32 %52 to i64
  %54 = load ptr, ptr %5, align 8, !tbaa !4
  %55 = getelementptr inbounds %struct.Model, ptr %54, i32 0, i32 1
  %56 = load i32, ptr %55, align 4, !tbaa !14
  %57 = sext i32 %56 to i64
  %58 = mul nsw i64 %53, %57
  %59 = getelementptr inbounds float, ptr %51, i64 %58
  call void @rms_norm(ptr noundef %39, ptr noundef %42, float noundef %45, i32 noundef %48, ptr noundef %59)
  br label %60

60:                                               ; preds = %22
  %61 = load ptr, ptr %6, align 8, !tbaa !4
  %62 = getelementptr inbounds %struct.Batch, ptr %61, i32 0, i32 3
  %63 = load i32, ptr %62, align 4, !tbaa !17
  %64 = load i32, ptr %10, align 4, !tbaa !8
  %65 = add nsw i32 %64, %63
  store i32 %65, ptr %10, align 4, !tbaa !8
  br label %17, !llvm.loop !62

66:                                               ; preds = %21
  %67 = load ptr, ptr %6, align 8, !tbaa !4
  call void @barrier_wait(ptr noundef %67)
  call void @llvm.lifetime.start.p0(i64 4, ptr %11) #10
  %68 = load ptr, ptr %5, align 8, !tbaa !4
  %69 = getelementptr inbounds %struct.Model, ptr %68, i32 0, i32 6
  %70 = load i32, ptr %69, align 8, !tbaa !63
  %71 = call i32 @panels(i32 noundef %70)
  %72 = mul nsw i32 %71, 32
  store i32 %72, ptr %11, align 4, !tbaa !8
  call void @llvm.lifetime.start.p0(i64 64, ptr %12) #10
  %73 = getelementptr inbounds %struct.Linear, ptr %12, i32 0, i32 0
  %74 = load ptr, ptr %6, align 8, !tbaa !4
  %75 = getelementptr inbounds %struct.Batch, ptr %74, i32 0, i32 11
  %76 = load ptr, ptr %75, align 8, !tbaa !43
  store ptr %76, ptr %73, align 8, !tbaa !44
  %77 = getelementptr inbounds %struct.Linear, ptr %12, i32 0, i32 1
  %78 = load ptr, ptr %6, align 8, !tbaa !4
  %79 = getelementptr inbounds %struct.Batch, ptr %78, i32 0, i32 15
  %80 = load ptr, ptr %79, align 8, !tbaa !64
  store ptr %80, ptr %77, align 8, !tbaa !47
  %81 = getelementptr inbounds %struct.Linear, ptr %12, i32 0, i32 2
  %82 = load ptr, ptr %5, align 8, !tbaa !4
  %83 = getelementptr inbounds %struct.Model, ptr %82, i32 0, i32 16
  %84 = load ptr, ptr %83, align 8, !tbaa !65
  store ptr %84, ptr %81, align 8, !tbaa !49
  %85 = getelementptr inbounds %struct.Linear, ptr %12, i32 0, i32 3
  store ptr null, ptr %85, align 8, !tbaa !50
  %86 = getelementptr inbounds %struct.Linear, ptr %12, i32 0, i32 4
  %87 = load ptr, ptr %5, align 8, !tbaa !4
  %88 = getelementptr inbounds %struct.Model, ptr %87, i32 0, i32 1
  %89 = load i32, ptr %88, align 4, !tbaa !14
  %90 = sext i32 %89 to i64
  store i64 %90, ptr %86, align 8, !tbaa !51
  %91 = getelementptr inbounds %struct.Linear, ptr %12, i32 0, i32 5
  %92 = load i32, ptr %11, align 4, !tbaa !8
  %93 = sext i32 %92 to i64
  store i64 %93, ptr %91, align 8, !tbaa !53
  %94 = getelementptr inbounds %struct.Linear, ptr %12, i32 0, i32 6
  %95 = load i32, ptr %9, align 4, !tbaa !8
  store i32 %95, ptr %94, align 8, !tbaa !54
  %96 = getelementptr inbounds %struct.Linear, ptr %12, i32 0, i32 7
  %97 = load ptr, ptr %5, align 8, !tbaa !4
  %98 = getelementptr inbounds %struct.Model, ptr %97, i32 0, i32 1
  %99 = load i32, ptr %98, align 4, !tbaa !14
  store i32 %99, ptr %96, align 4, !tbaa !55
  %100 = getelementptr inbounds %struct.Linear, ptr %12, i32 0, i32 8
  store i32 0, ptr %100, align 8, !tbaa !56
  %101 = getelementptr inbounds %struct.Linear, ptr %12, i32 0, i32 9
  %102 = load ptr, ptr %5, align 8, !tbaa !4
  %103 = getelementptr inbounds %struct.Model, ptr %102, i32 0, i32 7
  %104 = load i32, ptr %103, align 4, !tbaa !26
  store i32 %104, ptr %101, align 4, !tbaa !57
  %105 = load i32, ptr %11, align 4, !tbaa !8
  %106 = sdiv i32 %105, 32
  %107 = load ptr, ptr %6, align 8, !tbaa !4
  %108 = load i32, ptr %8, align 4, !tbaa !8
  call void @linear(ptr noundef %12, i32 noundef %106, ptr noundef %107, i32 noundef %108)
  %109 = load ptr, ptr %6, align 8, !tbaa !4
  call void @barrier_wait(ptr noundef %109)
  call void @llvm.lifetime.end.p0(i64 64, ptr %12) #10
  call void @llvm.lifetime.end.p0(i64 4, ptr %11) #10
  call void @llvm.lifetime.end.p0(i64 4, ptr %9) #10
  ret void
}

; Function Attrs: nounwind
define dso_local void @outrider_head_forward(ptr noundef %0, ptr noundef %1, ptr noundef %2, i32 noundef %3) #2 {
  %5 = alloca ptr, align 8
  %6 = alloca ptr, align 8
  %7 = alloca ptr, align 8
  %8 = alloca i32, align 4
  %9 = alloca ptr, align 8
  %10 = alloca i32, align 4
  %11 = alloca %struct.Linear, align 8
  %12 = alloca i32, align 4
  %13 = alloca i32, align 4
  %14 = alloca ptr, align 8
  %15 = alloca ptr, align 8
  %16 = alloca i32, align 4
  store ptr %0, ptr %5, align 8, !tbaa !4
  store ptr %1, ptr %6, align 8, !tbaa !4
  store ptr %2, ptr %7, align 8, !tbaa !4
  store i32 %3, ptr %8, align 4, !tbaa !8
  call void @llvm.lifetime.start.p0(i64 8, ptr %9) #10
  %17 = load ptr, ptr %5, align 8, !tbaa !4
  %18 = getelementptr inbounds %struct.Model, ptr %17, i32 0, i32 19
  %19 = load ptr, ptr %18, align 8, !tbaa !21
  store ptr %19, ptr %9, align 8, !tbaa !4
  call void @llvm.lifetime.start.p0(i64 4, ptr %10) #10
  %20 = load ptr, ptr %5, align 8, !tbaa !4
  %21 = getelementptr inbounds %struct.Model, ptr %20, i32 0, i32 1
  %22 = load i32, ptr %21, align 4, !tbaa !14
  store i32 %22, ptr %10, align 4, !tbaa !8
  %23 = load ptr, ptr %7, align 8, !tbaa !4
  %24 = getelementptr inbounds %struct.Batch, ptr %23, i32 0, i32 20
  %25 = load ptr, ptr %24, align 8, !tbaa !37
  %26 = icmp ne ptr %25, null
  br i1 %26, label %27, label %66

27:                                               ; preds = %4
  call void @llvm.lifetime.start.p0(i64 64, ptr %11) #10
  %28 = getelementptr inbounds %struct.Linear, ptr %11, i32 0, i32 0
  %29 = load ptr, ptr %7, align 8, !tbaa !4
  %30 = getelementptr inbounds %struct.Batch, ptr %29, i32 0, i32 20
  %31 = load ptr, ptr %30, align 8, !tbaa !37
  store ptr %31, ptr %28, align 8, !tbaa !44
  %32 = getelementptr inbounds %struct.Linear, ptr %11, i32 0, i32 1
  %33 = load ptr, ptr %7, align 8, !tbaa !4
  %34 = getelementptr inbounds %struct.Batch, ptr %33, i32 0, i32 10
  %35 = load ptr, ptr %34, align 8, !tbaa !13
  store ptr %35, ptr %32, align 8, !tbaa !47
  %36 = getelementptr inbounds %struct.Linear, ptr %11, i32 0, i32 2
  %37 = load ptr, ptr %6, align 8, !tbaa !4
  %38 = getelementptr inbounds %struct.Head, ptr %37, i32 0, i32 0
  %39 = load ptr, ptr %38, align 8, !tbaa !66
  store ptr %39, ptr %36, align 8, !tbaa !49
  %40 = getelementptr inbounds %struct.Linear, ptr %11, i32 0, i32 3
  store ptr null, ptr %40, align 8, !tbaa !50
  %41 = getelementptr inbounds %struct.Linear, ptr %11, i32 0, i32 4
  %42 = load ptr, ptr %6, align 8, !tbaa !4
  %43 = getelementptr inbounds %struct.Head, ptr %42, i32 0, i32 2
  %44 = load i32, ptr %43, align 8, !tbaa !68
  %45 = sext i32 %44 to i64
  store i64 %45, ptr %41, align 8, !tbaa !51
  %46 = getelementptr inbounds %struct.Linear, ptr %11, i32 0, i32 5
  %47 = load i32, ptr %10, align 4, !tbaa !8
  %48 = sext i32 %47 to i64
  store i64 %48, ptr %46, align 8, !tbaa !53
  %49 = getelementptr inbounds %struct.Linear, ptr %11, i32 0, i32 6
  %50 = load ptr, ptr %7, align 8, !tbaa !4
  %51 = getelementptr inbounds %struct.Batch, ptr %50, i32 0, i32 0
  %52 = load i32, ptr %51, align 8, !tbaa !10
  store i32 %52, ptr %49, align 8, !tbaa !54
  %53 = getelementptr inbounds %struct.Linear, ptr %11, i32 0, i32 7
  %54 = load ptr, ptr %6, align 8, !tbaa !4
  %55 = getelementptr inbounds %struct.Head, ptr %54, i32 0, i32 2
  %56 = load i32, ptr %55, align 8, !tbaa !68
  store i32 %56, ptr %53, align 4, !tbaa !55
  %57 = getelementptr inbounds %struct.Linear, ptr %11, i32 0, i32 8
  store i32 0, ptr %57, align 8, !tbaa !56
  %58 = getelementptr inbounds %struct.Linear, ptr %11, i32 0, i32 9
  %59 = load ptr, ptr %5, align 8, !tbaa !4
  %60 = getelementptr inbounds %struct.Model, ptr %59, i32 0, i32 7
  %61 = load i32, ptr %60, align 4, !tbaa !26
  store i32 %61, ptr %58, align 4, !tbaa !57
  %62 = load i32, ptr %10, align 4, !tbaa !8
  %63 = call i32 @panels(i32 noundef %62)
  %64 = load ptr, ptr %7, align 8, !tbaa !4
  call void @linear(ptr noundef %11, i32 noundef %63, ptr noundef %64, i32 noundef 7)
  %65 = load ptr, ptr %7, align 8, !tbaa !4
  call void @barrier_wait(ptr noundef %65)
  call void @llvm.lifetime.end.p0(i64 64, ptr %11) #10
  br label %66

66:                                               ; preds = %27, %4
  call void @llvm.lifetime.start.p0(i64 4, ptr %12) #10
  %67 = load i32, ptr %8, align 4, !tbaa !8
  store i32 %67, ptr %12, align 4, !tbaa !8
  br label %68

68:                                               ; preds = %153, %66
  %69 = load i32, ptr %12, align 4, !tbaa !8
  %70 = load ptr, ptr %7, align 8, !tbaa !4
  %71 = getelementptr inbounds %struct.Batch, ptr %70, i32 0, i32 0
  %72 = load i32, ptr %71, align 8, !tbaa !10
  %73 = icmp slt i32 %69, %72
  br i1 %73, label %75, label %74

74:                                               ; preds = %68
  store i32 2, ptr %13, align 4
  call void @llvm.lifetime.end.p0(i64 4, ptr %12) #10
  br label %159

75:                                               ; preds = %68
  call void @llvm.lifetime.start.p0(i64 8, ptr %14) #10
  %76 = load ptr, ptr %7, align 8, !tbaa !4
  %77 = getelementptr inbounds %struct.Batch, ptr %76, i32 0, i32 10
  %78 = load ptr, ptr %77, align 8, !tbaa !13
  %79 = load i32, ptr %12, align 4, !tbaa !8
  %80 = sext i32 %79 to i64
  %81 = load i32, ptr %10, align 4, !tbaa !8
  %82 = sext i32 %81 to i64
  %83 = mul nsw i64 %80, %82
  %84 = getelementptr inbounds float, ptr %78, i64 %83
  store ptr %84, ptr %14, align 8, !tbaa !4
  call void @llvm.lifetime.start.p0(i64 8, ptr %15) #10
  %85 = load ptr, ptr %7, align 8, !tbaa !4
  %86 = getelementptr inbounds %struct.Batch, ptr %85, i32 0, i32 11
  %87 = load ptr, ptr %86, align 8, !tbaa !43
  %88 = load i32, ptr %12, align 4, !tbaa !8
  %89 = sext i32 %88 to i64
  %90 = mul nsw i64 %89, 2
  %91 = load i32, ptr %10, align 4, !tbaa !8
  %92 = sext i32 %91 to i64
  %93 = mul nsw i64 %90, %92
  %94 = getelementptr inbounds float, ptr %87, i64 %93
  store ptr %94, ptr %15, align 8, !tbaa !4
  %95 = load ptr, ptr %5, align 8, !tbaa !4
  %96 = load ptr, ptr %7, align 8, !tbaa !4
  %97 = getelementptr inbounds %struct.Batch, ptr %96, i32 0, i32 4
  %98 = load ptr, ptr %97, align 8, !tbaa !12
  %99 = load i32, ptr %12, align 4, !tbaa !8
  %100 = sext i32 %99 to i64
  %101 = getelementptr inbounds i32, ptr %98, i64 %100
  %102 = load i32, ptr %101, align 4, !tbaa !8
  %103 = load ptr, ptr %15, align 8, !tbaa !4
  call void @embed_row(ptr noundef %95, i32 noundef %102, ptr noundef %103)
  %104 = load ptr, ptr %15, align 8, !tbaa !4
  %105 = load ptr, ptr %9, align 8, !tbaa !4
  %106 = getelementptr inbounds %struct.Layer, ptr %105, i32 0, i32 0
  %107 = load ptr, ptr %106, align 8, !tbaa !40
  %108 = load ptr, ptr %5, align 8, !tbaa !4
  %109 = getelementptr inbounds %struct.Model, ptr %108, i32 0, i32 12
  %110 = load float, ptr %109, align 8, !tbaa !61
  %111 = load i32, ptr %10, align 4, !tbaa !8
  %112 = load ptr, ptr %15, align 8, !tbaa !4
  call void @rms_norm(ptr noundef %104, ptr noundef %107, float noundef %110, i32 noundef %111, ptr noundef %112)
  %113 = load ptr, ptr %14, align 8, !tbaa !4
  %114 = load ptr, ptr %6, align 8, !tbaa !4
  %115 = getelementptr inbounds %struct.Head, ptr %114, i32 0, i32 1
  %116 = load ptr, ptr %115, align 8, !tbaa !69
  %117 = load ptr, ptr %5, align 8, !tbaa !4
  %118 = getelementptr inbounds %struct.Model, ptr %117, i32 0, i32 12
  %119 = load float, ptr %118, align 8, !tbaa !61
  %120 = load i32, ptr %10, align 4, !tbaa !8
  %121 = load ptr, ptr %15, align 8, !tbaa !4
  %122 = load i32, ptr %10, align 4, !tbaa !8
  %123 = sext i32 %122 to i64
  %124 = getelementptr inbounds float, ptr %121, i64 %123
  call void @rms_norm(ptr noundef %113, ptr noundef %116, float noundef %119, i32 noundef %120, ptr noundef %124)
  %125 = load ptr, ptr %6, align 8, !tbaa !4
  %126 = getelementptr inbounds %struct.Head, ptr %125, i32 0, i32 3
  %127 = load i32, ptr %126, align 4, !tbaa !70
  %128 = icmp ne i32 %127, 0
  br i1 %128, label %129, label %152

129:                                              ; preds = %75
  call void @llvm.lifetime.start.p0(i64 4, ptr %16) #10
  store i32 0, ptr %16, align 4, !tbaa !8
  br label %130

130:                                              ; preds = %148, %129
  %131 = load i32, ptr %16, align 4, !tbaa !8
  %132 = load i32, ptr %10, align 4, !tbaa !8
  %133 = icmp slt i32 %131, %132
  br i1 %133, label %135, label %134

134:                                              ; preds = %130
  store i32 5, ptr %13, align 4
  call void @llvm.lifetime.end.p0(i64 4, ptr %16) #10
  br label %151

135:                                              ; preds = %130
  %136 = load ptr, ptr %14, align 8, !tbaa !4
  %137 = load i32, ptr %16, align 4, !tbaa !8
  %138 = sext i32 %137 to i64
  %139 = getelementptr inbounds float, ptr %136, i64 %138
  %140 = load ptr, ptr %15, align 8, !tbaa !4
  %141 = load i32, ptr %10, align 4, !tbaa !8
  %142 = sext i32 %141 to i64
  %143 = getelementptr inbounds float, ptr %140, i64 %142
  %144 = load i32, ptr %16, align 4, !tbaa !8
  %145 = sext i32 %144 to i64
  %146 = getelementptr inbounds float, ptr %143, i64 %145
  %147 = call <16 x float> @load(ptr noundef %146)
  call void @store(ptr noundef %139, <16 x float> noundef %147)
  br label %148

148:                                              ; preds = %135
  %149 = load i32, ptr %16, align 4, !tbaa !8
  %150 = add nsw i32 %149, 16
  store i32 %150, ptr %16, align 4, !tbaa !8
  br label %130, !llvm.loop !71

151:                                              ; preds = %134
  br label %152

152:                                              ; preds = %151, %75
  call void @llvm.lifetime.end.p0(i64 8, ptr %15) #10
  call void @llvm.lifetime.end.p0(i64 8, ptr %14) #10
  br label %153

153:                                              ; preds = %152
  %154 = load ptr, ptr %7, align 8, !tbaa !4
  %155 = getelementptr inbounds %struct.Batch, ptr %154, i32 0, i32 3
  %156 = load i32, ptr %155, align 4, !tbaa !17
  %157 = load i32, ptr %12, align 4, !tbaa !8
  %158 = add nsw i32 %157, %156
  store i32 %158, ptr %12, align 4, !tbaa !8
  br label %68, !llvm.loop !72

159:                                              ; preds = %74
  %160 = load ptr, ptr %5, align 8, !tbaa !4
  %161 = load ptr, ptr %9, align 8, !tbaa !4
  %162 = load ptr, ptr %7, align 8, !tbaa !4
  %163 = load i32, ptr %10, align 4, !tbaa !8
  %164 = mul nsw i32 2, %163
  %165 = load i32, ptr %8, align 4, !tbaa !8
  call void @attention(ptr noundef %160, ptr noundef %161, ptr noundef %162, i32 noundef %164, i32 noundef %165, i32 noundef 0)
  %166 = load ptr, ptr %5, align 8, !tbaa !4
  %167 = load ptr, ptr %9, align 8, !tbaa !4
  %168 = load ptr, ptr %7, align 8, !tbaa !4
  %169 = load i32, ptr %8, align 4, !tbaa !8
  call void @mlp_layer(ptr noundef %166, ptr noundef %167, ptr noundef %168, i32 noundef %169, i32 noundef 0)
  %170 = load ptr, ptr %7, align 8, !tbaa !4
  %171 = getelementptr inbounds %struct.Batch, ptr %170, i32 0, i32 1
  %172 = load i32, ptr %171, align 4, !tbaa !23
  %173 = icmp ne i32 %172, 0
  br i1 %173, label %174, label %178

174:                                              ; preds = %159
  %175 = load ptr, ptr %5, align 8, !tbaa !4
  %176 = load ptr, ptr %7, align 8, !tbaa !4
  %177 = load i32, ptr %8, align 4, !tbaa !8
  call void @logits_layer(ptr noundef %175, ptr noundef %176, i32 noundef %177, i32 noundef 8)
  br label %178

178:                                              ; preds = %174, %159
  call void @llvm.lifetime.end.p0(i64 4, ptr %10) #10
  call void @llvm.lifetime.end.p0(i64 8, ptr %9) #10
  ret void
}

; Function Attrs: nounwind
define internal void @linear(ptr noundef %0, i32 noundef %1, ptr noundef %2, i32 noundef %3) #0 {
  %5 = alloca ptr, align 8
  %6 = alloca i32, align 4
  %7 = alloca ptr, align 8
  %8 = alloca i32, align 4
  %9 = alloca i32, align 4
  %10 = alloca i32, align 4
  %11 = alloca i32, align 4
  %12 = alloca i32, align 4
  store ptr %0, ptr %5, align 8, !tbaa !4
  store i32 %1, ptr %6, align 4, !tbaa !8
  store ptr %2, ptr %7, align 8, !tbaa !4
  store i32 %3, ptr %8, align 4, !tbaa !8
  call void @llvm.lifetime.start.p0(i64 4, ptr %9) #10
  %13 = load i32, ptr %6, align 4, !tbaa !8
  %14 = load ptr, ptr %7, align 8, !tbaa !4
  %15 = getelementptr inbounds %struct.Batch, ptr %14, i32 0, i32 3
  %16 = load i32, ptr %15, align 4, !tbaa !17
  %17 = mul nsw i32 4, %16
  %18 = sdiv i32 %13, %17
  %19 = add nsw i32 %18, 1
  store i32 %19, ptr %9, align 4, !tbaa !8
  br label %20

20:                                               ; preds = %59, %4
  call void @llvm.lifetime.start.p0(i64 4, ptr %10) #10
  %21 = load ptr, ptr %7, align 8, !tbaa !4
  %22 = load i32, ptr %8, align 4, !tbaa !8
  %23 = call i32 @next_chunk(ptr noundef %21, i32 noundef %22)
  %24 = load i32, ptr %9, align 4, !tbaa !8
  %25 = mul nsw i32 %23, %24
  store i32 %25, ptr %10, align 4, !tbaa !8
  %26 = load i32, ptr %10, align 4, !tbaa !8
  %27 = load i32, ptr %6, align 4, !tbaa !8
  %28 = icmp sge i32 %26, %27
  br i1 %28, label %29, label %30

29:                                               ; preds = %20
  store i32 1, ptr %11, align 4
  br label %57

30:                                               ; preds = %20
  call void @llvm.lifetime.start.p0(i64 4, ptr %12) #10
  %31 = load i32, ptr %10, align 4, !tbaa !8
  store i32 %31, ptr %12, align 4, !tbaa !8
  br label %32

32:                                               ; preds = %53, %30
  %33 = load i32, ptr %12, align 4, !tbaa !8
  %34 = load i32, ptr %10, align 4, !tbaa !8
  %35 = load i32, ptr %9, align 4, !tbaa !8
  %36 = add nsw i32 %34, %35
  %37 = load i32, ptr %6, align 4, !tbaa !8
  %38 = call i32 @min32(i32 noundef %36, i32 noundef %37)
  %39 = icmp slt i32 %33, %38
  br i1 %39, label %41, label %40

40:                                               ; preds = %32
  store i32 4, ptr %11, align 4
  call void @llvm.lifetime.end.p0(i64 4, ptr %12) #10
  br label %56

41:                                               ; preds = %32
  %42 = load ptr, ptr %5, align 8, !tbaa !4
  %43 = getelementptr inbounds %struct.Linear, ptr %42, i32 0, i32 9
  %44 = load i32, ptr %43, align 4, !tbaa !57
  %45 = icmp ne i32 %44, 0
  br i1 %45, label %46, label %49

46:                                               ; preds = %41
  %47 = load ptr, ptr %5, align 8, !tbaa !4
  %48 = load i32, ptr %12, align 4, !tbaa !8
  call void @linear_panel_bf16(ptr noundef %47, i32 noundef %48)
  br label %52

49:                                               ; preds = %41
  %50 = load ptr, ptr %5, align 8, !tbaa !4
  %51 = load i32, ptr %12, align 4, !tbaa !8
  call void @linear_panel_f32(ptr noundef %50, i32 noundef %51)
  br label %52

52:                                               ; preds = %49, %46
  br label %53

53:                                               ; preds = %52
  %54 = load i32, ptr %12, align 4, !tbaa !8
  %55 = add nsw i32 %54, 1
  store i32 %55, ptr %12, align 4, !tbaa !8
  br label %32, !llvm.loop !73

56:                                               ; preds = %40
  store i32 0, ptr %11, align 4
  br label %57

57:                                               ; preds = %56, %29
  call void @llvm.lifetime.end.p0(i64 4, ptr %10) #10
  %58 = load i32, ptr %11, align 4
  switch i32 %58, label %60 [
    i32 0, label %59
  ]

59:                                               ; preds = %57
  br label %20

60:                                               ; preds = %57
  call void @llvm.lifetime.end.p0(i64 4, ptr %9) #10
  ret void
}

; Function Attrs: alwaysinline nounwind
define internal i32 @panels(i32 noundef %0) #3 {
  %2 = alloca i32, align 4
  store i32 %0, ptr %2, align 4, !tbaa !8
  %3 = load i32, ptr %2, align 4, !tbaa !8
  %4 = add nsw i32 %3, 32
  %5 = sub nsw i32 %4, 1
  %6 = sdiv i32 %5, 32
  ret i32 %6
}

; Function Attrs: nounwind
define internal void @rms_norm(ptr noundef %0, ptr noundef %1, float noundef %2, i32 noundef %3, ptr noundef %4) #2 {
  %6 = alloca ptr, align 8
  %7 = alloca ptr, align 8
  %8 = alloca float, align 4
  %9 = alloca i32, align 4
  %10 = alloca ptr, align 8
  %11 = alloca <16 x float>, align 4
  %12 = alloca i32, align 4
  %13 = alloca float, align 4
  %14 = alloca i32, align 4
  store ptr %0, ptr %6, align 8, !tbaa !4
  store ptr %1, ptr %7, align 8, !tbaa !4
  store float %2, ptr %8, align 4, !tbaa !28
  store i32 %3, ptr %9, align 4, !tbaa !8
  store ptr %4, ptr %10, align 8, !tbaa !4
  call void @llvm.lifetime.start.p0(i64 64, ptr %11) #10
  %15 = call <16 x float> @splat(float noundef 0.000000e+00)
  store <16 x float> %15, ptr %11, align 4, !tbaa !74
  call void @llvm.lifetime.start.p0(i64 4, ptr %12) #10
  store i32 0, ptr %12, align 4, !tbaa !8
  br label %16

16:                                               ; preds = %34, %5
  %17 = load i32, ptr %12, align 4, !tbaa !8
  %18 = load i32, ptr %9, align 4, !tbaa !8
  %19 = icmp slt i32 %17, %18
  br i1 %19, label %21, label %20

20:                                               ; preds = %16
  call void @llvm.lifetime.end.p0(i64 4, ptr %12) #10
  br label %37

21:                                               ; preds = %16
  %22 = load ptr, ptr %6, align 8, !tbaa !4
  %23 = load i32, ptr %12, align 4, !tbaa !8
  %24 = sext i32 %23 to i64
  %25 = getelementptr inbounds float, ptr %22, i64 %24
  %26 = call <16 x float> @load(ptr noundef %25)
  %27 = load ptr, ptr %6, align 8, !tbaa !4
  %28 = load i32, ptr %12, align 4, !tbaa !8
  %29 = sext i32 %28 to i64
  %30 = getelementptr inbounds float, ptr %27, i64 %29
  %31 = call <16 x float> @load(ptr noundef %30)
  %32 = load <16 x float>, ptr %11, align 4, !tbaa !74
  %33 = call <16 x float> @fma16(<16 x float> noundef %26, <16 x float> noundef %31, <16 x float> noundef %32)
  store <16 x float> %33, ptr %11, align 4, !tbaa !74
  br label %34

34:                                               ; preds = %21
  %35 = load i32, ptr %12, align 4, !tbaa !8
  %36 = add nsw i32 %35, 16
  store i32 %36, ptr %12, align 4, !tbaa !8
  br label %16, !llvm.loop !75

37:                                               ; preds = %20
  call void @llvm.lifetime.start.p0(i64 4, ptr %13) #10
  %38 = load <16 x float>, ptr %11, align 4, !tbaa !74
  %39 = call float @sum16(<16 x float> noundef %38)
  %40 = load i32, ptr %9, align 4, !tbaa !8
  %41 = sitofp i32 %40 to float
  %42 = fdiv float %39, %41
  %43 = load float, ptr %8, align 4, !tbaa !28
  %44 = fadd float %42, %43
  %45 = call float @llvm.sqrt.f32(float %44)
  %46 = fdiv float 1.000000e+00, %45
  store float %46, ptr %13, align 4, !tbaa !28
  call void @llvm.lifetime.start.p0(i64 4, ptr %14) #10
  store i32 0, ptr %14, align 4, !tbaa !8
  br label %47

47:                                               ; preds = %71, %37
  %48 = load i32, ptr %14, align 4, !tbaa !8
  %49 = load i32, ptr %9, align 4, !tbaa !8
  %50 = icmp slt i32 %48, %49
  br i1 %50, label %52, label %51

51:                                               ; preds = %47
  call void @llvm.lifetime.end.p0(i64 4, ptr %14) #10
  br label %74

52:                                               ; preds = %47
  %53 = load ptr, ptr %10, align 8, !tbaa !4
  %54 = load i32, ptr %14, align 4, !tbaa !8
  %55 = sext i32 %54 to i64
  %56 = getelementptr inbounds float, ptr %53, i64 %55
  %57 = load ptr, ptr %6, align 8, !tbaa !4
  %58 = load i32, ptr %14, align 4, !tbaa !8
  %59 = sext i32 %58 to i64
  %60 = getelementptr inbounds float, ptr %57, i64 %59
  %61 = call <16 x float> @load(ptr noundef %60)
  %62 = load float, ptr %13, align 4, !tbaa !28
  %63 = call <16 x float> @splat(float noundef %62)
  %64 = fmul <16 x float> %61, %63
  %65 = load ptr, ptr %7, align 8, !tbaa !4
  %66 = load i32, ptr %14, align 4, !tbaa !8
  %67 = sext i32 %66 to i64
  %68 = getelementptr inbounds float, ptr %65, i64 %67
  %69 = call <16 x float> @load(ptr noundef %68)
  %70 = fmul <16 x float> %64, %69
  call void @store(ptr noundef %56, <16 x float> noundef %70)
  br label %71

71:                                               ; preds = %52
  %72 = load i32, ptr %14, align 4, !tbaa !8
  %73 = add nsw i32 %72, 16
  store i32 %73, ptr %14, align 4, !tbaa !8
  br label %47, !llvm.loop !76

74:                                               ; preds = %51
  call void @llvm.lifetime.end.p0(i64 4, ptr %13) #10
  call void @llvm.lifetime.end.p0(i64 64, ptr %11) #10
  ret void
}

; Function Attrs: alwaysinline nounwind
define internal void @store(ptr noundef %0, <16 x float> noundef %1) #4 {
  %3 = alloca ptr, align 8
  %4 = alloca <16 x float>, align 4
  store ptr %0, ptr %3, align 8, !tbaa !4
  store <16 x float> %1, ptr %4, align 4, !tbaa !74
  %5 = load <16 x float>, ptr %4, align 4, !tbaa !74
  %6 = load ptr, ptr %3, align 8, !tbaa !4
  store <16 x float> %5, ptr %6, align 4, !tbaa !74
  ret void
}

; Function Attrs: alwaysinline nounwind
define internal <16 x float> @load(ptr noundef %0) #4 {
  %2 = alloca ptr, align 8
  store ptr %0, ptr %2, align 8, !tbaa !4
  %3 = load ptr, ptr %2, align 8, !tbaa !4
  %4 = load <16 x float>, ptr %3, align 4, !tbaa !74
  ret <16 x float> %4
}

; Function Attrs: nounwind
define internal void @attention(ptr noundef %0, ptr noundef %1, ptr noundef %2, i32 noundef %3, i32 noundef %4, i32 noundef %5) #0 {
  %7 = alloca ptr, align 8
  %8 = alloca ptr, align 8
  %9 = alloca ptr, align 8
  %10 = alloca i32, align 4
  %11 = alloca i32, align 4
  %12 = alloca i32, align 4
  %13 = alloca i32, align 4
  %14 = alloca i32, align 4
  %15 = alloca %struct.Linear, align 8
  %16 = alloca i32, align 4
  %17 = alloca i32, align 4
  %18 = alloca %struct.Linear, align 8
  store ptr %0, ptr %7, align 8, !tbaa !4
  store ptr %1, ptr %8, align 8, !tbaa !4
  store ptr %2, ptr %9, align 8, !tbaa !4
  store i32 %3, ptr %10, align 4, !tbaa !8
  store i32 %4, ptr %11, align 4, !tbaa !8
  store i32 %5, ptr %12, align 4, !tbaa !8
  call void @llvm.lifetime.start.p0(i64 4, ptr %13) #10
  %19 = load ptr, ptr %7, align 8, !tbaa !4
  %20 = getelementptr inbounds %struct.Model, ptr %19, i32 0, i32 2
  %21 = load i32, ptr %20, align 8, !tbaa !77
  %22 = load ptr, ptr %7, align 8, !tbaa !4
  %23 = getelementptr inbounds %struct.Model, ptr %22, i32 0, i32 4
  %24 = load i32, ptr %23, align 8, !tbaa !78
  %25 = mul nsw i32 %21, %24
  store i32 %25, ptr %13, align 4, !tbaa !8
  call void @llvm.lifetime.start.p0(i64 4, ptr %14) #10
  %26 = load ptr, ptr %9, align 8, !tbaa !4
  %27 = getelementptr inbounds %struct.Batch, ptr %26, i32 0, i32 0
  %28 = load i32, ptr %27, align 8, !tbaa !10
  store i32 %28, ptr %14, align 4, !tbaa !8
  %29 = load ptr, ptr %9, align 8, !tbaa !4
  call void @barrier_wait(ptr noundef %29)
  call void @llvm.lifetime.start.p0(i64 64, ptr %15) #10
  %30 = getelementptr inbounds %struct.Linear, ptr %15, i32 0, i32 0
  %31 = load ptr, ptr %9, align 8, !tbaa !4
  %32 = getelementptr inbounds %struct.Batch, ptr %31, i32 0, i32 11
  %33 = load ptr, ptr %32, align 8, !tbaa !43
  store ptr %33, ptr %30, align 8, !tbaa !44
  %34 = getelementptr inbounds %struct.Linear, ptr %15, i32 0, i32 1
  %35 = load ptr, ptr %9, align 8, !tbaa !4
  %36 = getelementptr inbounds %struct.Batch, ptr %35, i32 0, i32 12
  %37 = load ptr, ptr %36, align 8, !tbaa !79
  store ptr %37, ptr %34, align 8, !tbaa !47
  %38 = getelementptr inbounds %struct.Linear, ptr %15, i32 0, i32 2
  %39 = load ptr, ptr %8, align 8, !tbaa !4
  %40 = getelementptr inbounds %struct.Layer, ptr %39, i32 0, i32 5
  %41 = load ptr, ptr %40, align 8, !tbaa !80
  store ptr %41, ptr %38, align 8, !tbaa !49
  %42 = getelementptr inbounds %struct.Linear, ptr %15, i32 0, i32 3
  %43 = load ptr, ptr %8, align 8, !tbaa !4
  %44 = getelementptr inbounds %struct.Layer, ptr %43, i32 0, i32 4
  %45 = load ptr, ptr %44, align 8, !tbaa !81
  store ptr %45, ptr %42, align 8, !tbaa !50
  %46 = getelementptr inbounds %struct.Linear, ptr %15, i32 0, i32 4
  %47 = load i32, ptr %10, align 4, !tbaa !8
  %48 = sext i32 %47 to i64
  store i64 %48, ptr %46, align 8, !tbaa !51
  %49 = getelementptr inbounds %struct.Linear, ptr %15, i32 0, i32 5
  %50 = load ptr, ptr %7, align 8, !tbaa !4
  %51 = getelementptr inbounds %struct.Model, ptr %50, i32 0, i32 11
  %52 = load i32, ptr %51, align 4, !tbaa !82
  %53 = sext i32 %52 to i64
  store i64 %53, ptr %49, align 8, !tbaa !53
  %54 = getelementptr inbounds %struct.Linear, ptr %15, i32 0, i32 6
  %55 = load i32, ptr %14, align 4, !tbaa !8
  store i32 %55, ptr %54, align 8, !tbaa !54
  %56 = getelementptr inbounds %struct.Linear, ptr %15, i32 0, i32 7
  %57 = load i32, ptr %10, align 4, !tbaa !8
  store i32 %57, ptr %56, align 4, !tbaa !55
  %58 = getelementptr inbounds %struct.Linear, ptr %15, i32 0, i32 8
  store i32 0, ptr %58, align 8, !tbaa !56
  %59 = getelementptr inbounds %struct.Linear, ptr %15, i32 0, i32 9
  %60 = load ptr, ptr %7, align 8, !tbaa !4
  %61 = getelementptr inbounds %struct.Model, ptr %60, i32 0, i32 7
  %62 = load i32, ptr %61, align 4, !tbaa !26
  store i32 %62, ptr %59, align 4, !tbaa !57
  %63 = load ptr, ptr %7, align 8, !tbaa !4
  %64 = getelementptr inbounds %struct.Model, ptr %63, i32 0, i32 11
  %65 = load i32, ptr %64, align 4, !tbaa !82
  %66 = sdiv i32 %65, 32
  %67 = load ptr, ptr %9, align 8, !tbaa !4
  %68 = load i32, ptr %12, align 4, !tbaa !8
  call void @linear(ptr noundef %15, i32 noundef %66, ptr noundef %67, i32 noundef %68)
  %69 = load ptr, ptr %9, align 8, !tbaa !4
  call void @barrier_wait(ptr noundef %69)
  call void @llvm.lifetime.start.p0(i64 4, ptr %16) #10
  %70 = load i32, ptr %11, align 4, !tbaa !8
  store i32 %70, ptr %16, align 4, !tbaa !8
  br label %71

71:                                               ; preds = %81, %6
  %72 = load i32, ptr %16, align 4, !tbaa !8
  %73 = load i32, ptr %14, align 4, !tbaa !8
  %74 = icmp slt i32 %72, %73
  br i1 %74, label %76, label %75

75:                                               ; preds = %71
  call void @llvm.lifetime.end.p0(i64 4, ptr %16) #10
  br label %87

76:                                               ; preds = %71
  %77 = load ptr, ptr %7, align 8, !tbaa !4
  %78 = load ptr, ptr %8, align 8, !tbaa !4
  %79 = load ptr, ptr %9, align 8, !tbaa !4
  %80 = load i32, ptr %16, align 4, !tbaa !8
  call void @position_row(ptr noundef %77, ptr noundef %78, ptr noundef %79, i32 noundef %80)
  br label %81

81:                                               ; preds = %76
  %82 = load ptr, ptr %9, align 8, !tbaa !4
  %83 = getelementptr inbounds %struct.Batch, ptr %82, i32 0, i32 3
  %84 = load i32, ptr %83, align 4, !tbaa !17
  %85 = load i32, ptr %16, align 4, !tbaa !8
  %86 = add nsw i32 %85, %84
  store i32 %86, ptr %16, align 4, !tbaa !8
  br label %71, !llvm.loop !83

87:                                               ; preds = %75
  %88 = load ptr, ptr %9, align 8, !tbaa !4
  call void @barrier_wait(ptr noundef %88)
  call void @llvm.lifetime.start.p0(i64 4, ptr %17) #10
  br label %89

89:                                               ; preds = %101, %87
  %90 = load ptr, ptr %9, align 8, !tbaa !4
  %91 = load i32, ptr %12, align 4, !tbaa !8
  %92 = add nsw i32 %91, 1
  %93 = call i32 @next_chunk(ptr noundef %90, i32 noundef %92)
  store i32 %93, ptr %17, align 4, !tbaa !8
  %94 = load i32, ptr %14, align 4, !tbaa !8
  %95 = load ptr, ptr %7, align 8, !tbaa !4
  %96 = getelementptr inbounds %struct.Model, ptr %95, i32 0, i32 3
  %97 = load i32, ptr %96, align 4, !tbaa !84
  %98 = mul nsw i32 %94, %97
  %99 = icmp slt i32 %93, %98
  br i1 %99, label %101, label %100

100:                                              ; preds = %89
  call void @llvm.lifetime.end.p0(i64 4, ptr %17) #10
  br label %115

101:                                              ; preds = %89
  %102 = load ptr, ptr %7, align 8, !tbaa !4
  %103 = load ptr, ptr %8, align 8, !tbaa !4
  %104 = load ptr, ptr %9, align 8, !tbaa !4
  %105 = load i32, ptr %17, align 4, !tbaa !8
  %106 = load ptr, ptr %7, align 8, !tbaa !4
  %107 = getelementptr inbounds %struct.Model, ptr %106, i32 0, i32 3
  %108 = load i32, ptr %107, align 4, !tbaa !84
  %109 = sdiv i32 %105, %108
  %110 = load i32, ptr %17, align 4, !tbaa !8
  %111 = load ptr, ptr %7, align 8, !tbaa !4
  %112 = getelementptr inbounds %struct.Model, ptr %111, i32 0, i32 3
  %113 = load i32, ptr %112, align 4, !tbaa !84
  %114 = srem i32 %110, %113
  call void @attend_row(ptr noundef %102, ptr noundef %103, ptr noundef %104, i32 noundef %109, i32 noundef %114)
  br label %89, !llvm.loop !85

115:                                              ; preds = %100
  %116 = load ptr, ptr %9, align 8, !tbaa !4
  call void @barrier_wait(ptr noundef %116)
  call void @llvm.lifetime.start.p0(i64 64, ptr %18) #10
  %117 = getelementptr inbounds %struct.Linear, ptr %18, i32 0, i32 0
  %118 = load ptr, ptr %9, align 8, !tbaa !4
  %119 = getelementptr inbounds %struct.Batch, ptr %118, i32 0, i32 13
  %120 = load ptr, ptr %119, align 8, !tbaa !86
  store ptr %120, ptr %117, align 8, !tbaa !44
  %121 = getelementptr inbounds %struct.Linear, ptr %18, i32 0, i32 1
  %122 = load ptr, ptr %9, align 8, !tbaa !4
  %123 = getelementptr inbounds %struct.Batch, ptr %122, i32 0, i32 10
  %124 = load ptr, ptr %123, align 8, !tbaa !13
  store ptr %124, ptr %121, align 8, !tbaa !47
  %125 = getelementptr inbounds %struct.Linear, ptr %18, i32 0, i32 2
  %126 = load ptr, ptr %8, align 8, !tbaa !4
  %127 = getelementptr inbounds %struct.Layer, ptr %126, i32 0, i32 6
  %128 = load ptr, ptr %127, align 8, !tbaa !87
  store ptr %128, ptr %125, align 8, !tbaa !49
  %129 = getelementptr inbounds %struct.Linear, ptr %18, i32 0, i32 3
  store ptr null, ptr %129, align 8, !tbaa !50
  %130 = getelementptr inbounds %struct.Linear, ptr %18, i32 0, i32 4
  %131 = load i32, ptr %13, align 4, !tbaa !8
  %132 = sext i32 %131 to i64
  store i64 %132, ptr %130, align 8, !tbaa !51
  %133 = getelementptr inbounds %struct.Linear, ptr %18, i32 0, i32 5
  %134 = load ptr, ptr %7, align 8, !tbaa !4
  %135 = getelementptr inbounds %struct.Model, ptr %134, i32 0, i32 1
  %136 = load i32, ptr %135, align 4, !tbaa !14
  %137 = sext i32 %136 to i64
  store i64 %137, ptr %133, align 8, !tbaa !53
  %138 = getelementptr inbounds %struct.Linear, ptr %18, i32 0, i32 6
  %139 = load i32, ptr %14, align 4, !tbaa !8
  store i32 %139, ptr %138, align 8, !tbaa !54
  %140 = getelementptr inbounds %struct.Linear, ptr %18, i32 0, i32 7
  %141 = load i32, ptr %13, align 4, !tbaa !8
  store i32 %141, ptr %140, align 4, !tbaa !55
  %142 = getelementptr inbounds %struct.Linear, ptr %18, i32 0, i32 8
  store i32 1, ptr %142, align 8, !tbaa !56
  %143 = getelementptr inbounds %struct.Linear, ptr %18, i32 0, i32 9
  %144 = load ptr, ptr %7, align 8, !tbaa !4
  %145 = getelementptr inbounds %struct.Model, ptr %144, i32 0, i32 7
  %146 = load i32, ptr %145, align 4, !tbaa !26
  store i32 %146, ptr %143, align 4, !tbaa !57
  %147 = load ptr, ptr %7, align 8, !tbaa !4
  %148 = getelementptr inbounds %struct.Model, ptr %147, i32 0, i32 1
  %149 = load i32, ptr %148, align 4, !tbaa !14
  %150 = call i32 @panels(i32 noundef %149)
  %151 = load ptr, ptr %9, align 8, !tbaa !4
  %152 = load i32, ptr %12, align 4, !tbaa !8
  %153 = add nsw i32 %152, 2
  call void @linear(ptr noundef %18, i32 noundef %150, ptr noundef %151, i32 noundef %153)
  %154 = load ptr, ptr %9, align 8, !tbaa !4
  call void @barrier_wait(ptr noundef %154)
  call void @llvm.lifetime.end.p0(i64 64, ptr %18) #10
  call void @llvm.lifetime.end.p0(i64 64, ptr %15) #10
  call void @llvm.lifetime.end.p0(i64 4, ptr %14) #10
  call void @llvm.lifetime.end.p0(i64 4, ptr %13) #10
  ret void
}

; Function Attrs: nounwind
define dso_local void @outrider_move_kv(ptr noundef %0, ptr noundef %1, ptr noundef %2, i32 noundef %3) #0 {
  %5 = alloca ptr, align 8
  %6 = alloca ptr, align 8
  %7 = alloca ptr, align 8
  %8 = alloca i32, align 4
  %9 = alloca i32, align 4
  %10 = alloca i32, align 4
  %11 = alloca i32, align 4
  %12 = alloca i32, align 4
  %13 = alloca %struct.Place, align 8
  %14 = alloca %struct.Place, align 8
  store ptr %0, ptr %5, align 8, !tbaa !4
  store ptr %1, ptr %6, align 8, !tbaa !4
  store ptr %2, ptr %7, align 8, !tbaa !4
  store i32 %3, ptr %8, align 4, !tbaa !8
  call void @llvm.lifetime.start.p0(i64 4, ptr %9) #10
  store i32 0, ptr %9, align 4, !tbaa !8
  br label %15

15:                                               ; preds = %96, %4
  %16 = load i32, ptr %9, align 4, !tbaa !8
  %17 = load ptr, ptr %5, align 8, !tbaa !4
  %18 = getelementptr inbounds %struct.Model, ptr %17, i32 0, i32 0
  %19 = load i32, ptr %18, align 8, !tbaa !20
  %20 = icmp slt i32 %16, %19
  br i1 %20, label %22, label %21

21:                                               ; preds = %15
  store i32 2, ptr %10, align 4
  call void @llvm.lifetime.end.p0(i64 4, ptr %9) #10
  br label %99

22:                                               ; preds = %15
  call void @llvm.lifetime.start.p0(i64 4, ptr %11) #10
  store i32 0, ptr %11, align 4, !tbaa !8
  br label %23

23:                                               ; preds = %92, %22
  %24 = load i32, ptr %11, align 4, !tbaa !8
  %25 = load i32, ptr %8, align 4, !tbaa !8
  %26 = icmp slt i32 %24, %25
  br i1 %26, label %28, label %27

27:                                               ; preds = %23
  store i32 5, ptr %10, align 4
  call void @llvm.lifetime.end.p0(i64 4, ptr %11) #10
  br label %95

28:                                               ; preds = %23
  call void @llvm.lifetime.start.p0(i64 4, ptr %12) #10
  store i32 0, ptr %12, align 4, !tbaa !8
  br label %29

29:                                               ; preds = %88, %28
  %30 = load i32, ptr %12, align 4, !tbaa !8
  %31 = load ptr, ptr %5, align 8, !tbaa !4
  %32 = getelementptr inbounds %struct.Model, ptr %31, i32 0, i32 3
  %33 = load i32, ptr %32, align 4, !tbaa !84
  %34 = icmp slt i32 %30, %33
  br i1 %34, label %36, label %35

35:                                               ; preds = %29
  store i32 8, ptr %10, align 4
  call void @llvm.lifetime.end.p0(i64 4, ptr %12) #10
  br label %91

36:                                               ; preds = %29
  %37 = load ptr, ptr %5, align 8, !tbaa !4
  %38 = load ptr, ptr %5, align 8, !tbaa !4
  %39 = getelementptr inbounds %struct.Model, ptr %38, i32 0, i32 19
  %40 = load ptr, ptr %39, align 8, !tbaa !21
  %41 = load i32, ptr %9, align 4, !tbaa !8
  %42 = sext i32 %41 to i64
  %43 = getelementptr inbounds %struct.Layer, ptr %40, i64 %42
  %44 = load ptr, ptr %5, align 8, !tbaa !4
  %45 = load ptr, ptr %6, align 8, !tbaa !4
  %46 = load i32, ptr %11, align 4, !tbaa !8
  %47 = sext i32 %46 to i64
  %48 = getelementptr inbounds i32, ptr %45, i64 %47
  %49 = load i32, ptr %48, align 4, !tbaa !8
  %50 = load i32, ptr %12, align 4, !tbaa !8
  %51 = call { i64, i64 } @place_of(ptr noundef %44, i32 noundef %49, i32 noundef %50)
  %52 = getelementptr inbounds { i64, i64 }, ptr %13, i32 0, i32 0
  %53 = extractvalue { i64, i64 } %51, 0
  store i64 %53, ptr %52, align 8
  %54 = getelementptr inbounds { i64, i64 }, ptr %13, i32 0, i32 1
  %55 = extractvalue { i64, i64 } %51, 1
  store i64 %55, ptr %54, align 8
  %56 = load ptr, ptr %5, align 8, !tbaa !4
  %57 = getelementptr inbounds %struct.Model, ptr %56, i32 0, i32 19
  %58 = load ptr, ptr %57, align 8, !tbaa !21
  %59 = load i32, ptr %9, align 4, !tbaa !8
  %60 = sext i32 %59 to i64
  %61 = getelementptr inbounds %struct.Layer, ptr %58, i64 %60
  %62 = getelementptr inbounds %struct.Layer, ptr %61, i32 0, i32 9
  %63 = load ptr, ptr %62, align 8, !tbaa !88
  %64 = load ptr, ptr %5, align 8, !tbaa !4
  %65 = getelementptr inbounds %struct.Model, ptr %64, i32 0, i32 19
  %66 = load ptr, ptr %65, align 8, !tbaa !21
  %67 = load i32, ptr %9, align 4, !tbaa !8
  %68 = sext i32 %67 to i64
  %69 = getelementptr inbounds %struct.Layer, ptr %66, i64 %68
  %70 = getelementptr inbounds %struct.Layer, ptr %69, i32 0, i32 10
  %71 = load ptr, ptr %70, align 8, !tbaa !89
  %72 = load ptr, ptr %5, align 8, !tbaa !4
  %73 = load ptr, ptr %7, align 8, !tbaa !4
  %74 = load i32, ptr %11, align 4, !tbaa !8
  %75 = sext i32 %74 to i64
  %76 = getelementptr inbounds i32, ptr %73, i64 %75
  %77 = load i32, ptr %76, align 4, !tbaa !8
  %78 = load i32, ptr %12, align 4, !tbaa !8
  %79 = call { i64, i64 } @place_of(ptr noundef %72, i32 noundef %77, i32 noundef %78)
  %80 = getelementptr inbounds { i64, i64 }, ptr %14, i32 0, i32 0
  %81 = extractvalue { i64, i64 } %79, 0
  store i64 %81, ptr %80, align 8
  %82 = getelementptr inbounds { i64, i64 }, ptr %14, i32 0, i32 1
  %83 = extractvalue { i64, i64 } %79, 1
  store i64 %83, ptr %82, align 8
  %84 = getelementptr inbounds { i64, i64 }, ptr %13, i32 0, i32 0
  %85 = load i64, ptr %84, align 8
  %86 = getelementptr inbounds { i64, i64 }, ptr %13, i32 0, i32 1
  %87 = load i64, ptr %86, align 8
  call void @copy_kv(ptr noundef %37, ptr noundef %43, i64 %85, i64 %87, ptr noundef %63, ptr noundef %71, ptr noundef byval(%struct.Place) align 8 %14)
  br label %88

88:                                               ; preds = %36
  %89 = load i32, ptr %12, align 4, !tbaa !8
  %90 = add nsw i32 %89, 1
  store i32 %90, ptr %12, align 4, !tbaa !8
  br label %29, !llvm.loop !90

91:                                               ; preds = %35
  br label %92

92:                                               ; preds = %91
  %93 = load i32, ptr %11, align 4, !tbaa !8
  %94 = add nsw i32 %93, 1
  store i32 %94, ptr %11, align 4, !tbaa !8
  br label %23, !llvm.loop !91

95:                                               ; preds = %27
  br label %96

96:                                               ; preds = %95
  %97 = load i32, ptr %9, align 4, !tbaa !8
  %98 = add nsw i32 %97, 1
  store i32 %98, ptr %9, align 4, !tbaa !8
  br label %15, !llvm.loop !92

99:                                               ; preds = %21
  ret void
}

; Function Attrs: nounwind
define internal void @copy_kv(ptr noundef %0, ptr noundef %1, i64 %2, i64 %3, ptr noundef %4, ptr noundef %5, ptr noundef byval(%struct.Place) align 8 %6) #0 {
  %8 = alloca %struct.Place, align 8
  %9 = alloca ptr, align 8
  %10 = alloca ptr, align 8
  %11 = alloca ptr, align 8
  %12 = alloca ptr, align 8
  %13 = alloca i32, align 4
  %14 = alloca i32, align 4
  %15 = alloca i32, align 4
  %16 = getelementptr inbounds { i64, i64 }, ptr %8, i32 0, i32 0
  store i64 %2, ptr %16, align 8
  %17 = getelementptr inbounds { i64, i64 }, ptr %8, i32 0, i32 1
  store i64 %3, ptr %17, align 8
  store ptr %0, ptr %9, align 8, !tbaa !4
  store ptr %1, ptr %10, align 8, !tbaa !4
  store ptr %4, ptr %11, align 8, !tbaa !4
  store ptr %5, ptr %12, align 8, !tbaa !4
  call void @llvm.lifetime.start.p0(i64 4, ptr %13) #10
  %18 = load ptr, ptr %9, align 8, !tbaa !4
  %19 = getelementptr inbounds %struct.Model, ptr %18, i32 0, i32 4
  %20 = load i32, ptr %19, align 8, !tbaa !78
  store i32 %20, ptr %13, align 4, !tbaa !8
  %21 = load ptr, ptr %9, align 8, !tbaa !4
  %22 = getelementptr inbounds %struct.Model, ptr %21, i32 0, i32 8
  %23 = load i32, ptr %22, align 8, !tbaa !93
  %24 = icmp ne i32 %23, 0
  br i1 %24, label %25, label %68

25:                                               ; preds = %7
  call void @llvm.lifetime.start.p0(i64 4, ptr %14) #10
  store i32 0, ptr %14, align 4, !tbaa !8
  br label %26

26:                                               ; preds = %51, %25
  %27 = load i32, ptr %14, align 4, !tbaa !8
  %28 = load i32, ptr %13, align 4, !tbaa !8
  %29 = icmp slt i32 %27, %28
  br i1 %29, label %31, label %30

30:                                               ; preds = %26
  call void @llvm.lifetime.end.p0(i64 4, ptr %14) #10
  br label %54

31:                                               ; preds = %26
  %32 = load ptr, ptr %10, align 8, !tbaa !4
  %33 = getelementptr inbounds %struct.Layer, ptr %32, i32 0, i32 9
  %34 = load ptr, ptr %33, align 8, !tbaa !88
  %35 = getelementptr inbounds %struct.Place, ptr %8, i32 0, i32 0
  %36 = load i64, ptr %35, align 8, !tbaa !94
  %37 = load i32, ptr %14, align 4, !tbaa !8
  %38 = mul nsw i32 %37, 32
  %39 = sext i32 %38 to i64
  %40 = add nsw i64 %36, %39
  %41 = getelementptr inbounds i16, ptr %34, i64 %40
  %42 = load i16, ptr %41, align 2, !tbaa !30
  %43 = load ptr, ptr %11, align 8, !tbaa !4
  %44 = getelementptr inbounds %struct.Place, ptr %6, i32 0, i32 0
  %45 = load i64, ptr %44, align 8, !tbaa !94
  %46 = load i32, ptr %14, align 4, !tbaa !8
  %47 = mul nsw i32 %46, 32
  %48 = sext i32 %47 to i64
  %49 = add nsw i64 %45, %48
  %50 = getelementptr inbounds i16, ptr %43, i64 %49
  store i16 %42, ptr %50, align 2, !tbaa !30
  br label %51

51:                                               ; preds = %31
  %52 = load i32, ptr %14, align 4, !tbaa !8
  %53 = add nsw i32 %52, 1
  store i32 %53, ptr %14, align 4, !tbaa !8
  br label %26, !llvm.loop !96

54:                                               ; preds = %30
  %55 = load ptr, ptr %12, align 8, !tbaa !4
  %56 = getelementptr inbounds %struct.Place, ptr %6, i32 0, i32 1
  %57 = load i64, ptr %56, align 8, !tbaa !97
  %58 = getelementptr inbounds i16, ptr %55, i64 %57
  %59 = load ptr, ptr %10, align 8, !tbaa !4
  %60 = getelementptr inbounds %struct.Layer, ptr %59, i32 0, i32 10
  %61 = load ptr, ptr %60, align 8, !tbaa !89
  %62 = getelementptr inbounds %struct.Place, ptr %8, i32 0, i32 1
  %63 = load i64, ptr %62, align 8, !tbaa !97
  %64 = getelementptr inbounds i16, ptr %61, i64 %63
  %65 = load i32, ptr %13, align 4, !tbaa !8
  %66 = mul nsw i32 %65, 2
  %67 = sext i32 %66 to i64
  call void @llvm.memcpy.p0.p0.i64(ptr align 2 %58, ptr align 2 %64, i64 %67, i1 false)
  br label %111

68:                                               ; preds = %7
  call void @llvm.lifetime.start.p0(i64 4, ptr %15) #10
  store i32 0, ptr %15, align 4, !tbaa !8
  br label %69

69:                                               ; preds = %94, %68
  %70 = load i32, ptr %15, align 4, !tbaa !8
  %71 = load i32, ptr %13, align 4, !tbaa !8
  %72 = icmp slt i32 %70, %71
  br i1 %72, label %74, label %73

73:                                               ; preds = %69
  call void @llvm.lifetime.end.p0(i64 4, ptr %15) #10
  br label %97

74:                                               ; preds = %69
  %75 = load ptr, ptr %10, align 8, !tbaa !4
  %76 = getelementptr inbounds %struct.Layer, ptr %75, i32 0, i32 9
  %77 = load ptr, ptr %76, align 8, !tbaa !88
  %78 = getelementptr inbounds %struct.Place, ptr %8, i32 0, i32 0
  %79 = load i64, ptr %78, align 8, !tbaa !94
  %80 = load i32, ptr %15, align 4, !tbaa !8
  %81 = mul nsw i32 %80, 32
  %82 = sext i32 %81 to i64
  %83 = add nsw i64 %79, %82
  %84 = getelementptr inbounds float, ptr %77, i64 %83
  %85 = load float, ptr %84, align 4, !tbaa !28
  %86 = load ptr, ptr %11, align 8, !tbaa !4
  %87 = getelementptr inbounds %struct.Place, ptr %6, i32 0, i32 0
  %88 = load i64, ptr %87, align 8, !tbaa !94
  %89 = load i32, ptr %15, align 4, !tbaa !8
  %90 = mul nsw i32 %89, 32
  %91 = sext i32 %90 to i64
  %92 = add nsw i64 %88, %91
  %93 = getelementptr inbounds float, ptr %86, i64 %92
  store float %85, ptr %93, align 4, !tbaa !28
  br label %94

94:                                               ; preds = %74
  %95 = load i32, ptr %15, align 4, !tbaa !8
  %96 = add nsw i32 %95, 1
  store i32 %96, ptr %15, align 4, !tbaa !8
  br label %69, !llvm.loop !98

97:                                               ; preds = %73
  %98 = load ptr, ptr %12, align 8, !tbaa !4
  %99 = getelementptr inbounds %struct.Place, ptr %6, i32 0, i32 1
  %100 = load i64, ptr %99, align 8, !tbaa !97
  %101 = getelementptr inbounds float, ptr %98, i64 %100
  %102 = load ptr, ptr %10, align 8, !tbaa !4
  %103 = getelementptr inbounds %struct.Layer, ptr %102, i32 0, i32 10
  %104 = load ptr, ptr %103, align 8, !tbaa !89
  %105 = getelementptr inbounds %struct.Place, ptr %8, i32 0, i32 1
  %106 = load i64, ptr %105, align 8, !tbaa !97
  %107 = getelementptr inbounds float, ptr %104, i64 %106
  %108 = load i32, ptr %13, align 4, !tbaa !8
  %109 = mul nsw i32 %108, 4
  %110 = sext i32 %109 to i64
  call void @llvm.memcpy.p0.p0.i64(ptr align 4 %101, ptr align 4 %107, i64 %110, i1 false)
  br label %111

111:                                              ; preds = %97, %54
  call void @llvm.lifetime.end.p0(i64 4, ptr %13) #10
  ret void
}

; Function Attrs: alwaysinline nounwind
define internal { i64, i64 } @place_of(ptr noundef %0, i32 noundef %1, i32 noundef %2) #3 {
  %4 = alloca %struct.Place, align 8
  %5 = alloca ptr, align 8
  %6 = alloca i32, align 4
  %7 = alloca i32, align 4
  %8 = alloca i32, align 4
  %9 = alloca i32, align 4
  %10 = alloca i32, align 4
  %11 = alloca i64, align 8
  %12 = alloca i64, align 8
  store ptr %0, ptr %5, align 8, !tbaa !4
  store i32 %1, ptr %6, align 4, !tbaa !8
  store i32 %2, ptr %7, align 4, !tbaa !8
  call void @llvm.lifetime.start.p0(i64 4, ptr %8) #10
  %13 = load ptr, ptr %5, align 8, !tbaa !4
  %14 = getelementptr inbounds %struct.Model, ptr %13, i32 0, i32 9
  %15 = load i32, ptr %14, align 4, !tbaa !99
  store i32 %15, ptr %8, align 4, !tbaa !8
  call void @llvm.lifetime.start.p0(i64 4, ptr %9) #10
  %16 = load ptr, ptr %5, align 8, !tbaa !4
  %17 = getelementptr inbounds %struct.Model, ptr %16, i32 0, i32 4
  %18 = load i32, ptr %17, align 8, !tbaa !78
  store i32 %18, ptr %9, align 4, !tbaa !8
  call void @llvm.lifetime.start.p0(i64 4, ptr %10) #10
  %19 = load i32, ptr %6, align 4, !tbaa !8
  %20 = load i32, ptr %8, align 4, !tbaa !8
  %21 = srem i32 %19, %20
  store i32 %21, ptr %10, align 4, !tbaa !8
  call void @llvm.lifetime.start.p0(i64 8, ptr %11) #10
  %22 = load i32, ptr %6, align 4, !tbaa !8
  %23 = load i32, ptr %8, align 4, !tbaa !8
  %24 = sdiv i32 %22, %23
  %25 = sext i32 %24 to i64
  %26 = load ptr, ptr %5, align 8, !tbaa !4
  %27 = getelementptr inbounds %struct.Model, ptr %26, i32 0, i32 3
  %28 = load i32, ptr %27, align 4, !tbaa !84
  %29 = sext i32 %28 to i64
  %30 = mul nsw i64 %25, %29
  %31 = load i32, ptr %7, align 4, !tbaa !8
  %32 = sext i32 %31 to i64
  %33 = add nsw i64 %30, %32
  %34 = load i32, ptr %8, align 4, !tbaa !8
  %35 = sext i32 %34 to i64
  %36 = mul nsw i64 %33, %35
  %37 = load i32, ptr %9, align 4, !tbaa !8
  %38 = sext i32 %37 to i64
  %39 = mul nsw i64 %36, %38
  store i64 %39, ptr %11, align 8, !tbaa !24
  call void @llvm.lifetime.start.p0(i64 8, ptr %12) #10
  %40 = load i64, ptr %11, align 8, !tbaa !24
  %41 = load i32, ptr %10, align 4, !tbaa !8
  %42 = sdiv i32 %41, 32
  %43 = sext i32 %42 to i64
  %44 = load i32, ptr %9, align 4, !tbaa !8
  %45 = sext i32 %44 to i64
  %46 = mul nsw i64 %43, %45
  %47 = mul nsw i64 %46, 32
  %48 = add nsw i64 %40, %47
  store i64 %48, ptr %12, align 8, !tbaa !24
  %49 = getelementptr inbounds %struct.Place, ptr %4, i32 0, i32 0
  %50 = load i64, ptr %12, align 8, !tbaa !24
  %51 = load ptr, ptr %5, align 8, !tbaa !4
  %52 = load i32, ptr %10, align 4, !tbaa !8
  %53 = srem i32 %52, 32
  %54 = call i32 @key_column(ptr noundef %51, i32 noundef %53)
  %55 = sext i32 %54 to i64
  %56 = add nsw i64 %50, %55
  store i64 %56, ptr %49, align 8, !tbaa !94
  %57 = getelementptr inbounds %struct.Place, ptr %4, i32 0, i32 1
  %58 = load i64, ptr %11, align 8, !tbaa !24
  %59 = load i32, ptr %10, align 4, !tbaa !8
  %60 = sext i32 %59 to i64
  %61 = load i32, ptr %9, align 4, !tbaa !8
  %62 = sext i32 %61 to i64
  %63 = mul nsw i64 %60, %62
  %64 = add nsw i64 %58, %63
  store i64 %64, ptr %57, align 8, !tbaa !97
  call void @llvm.lifetime.end.p0(i64 8, ptr %12) #10
  call void @llvm.lifetime.end.p0(i64 8, ptr %11) #10
  call void @llvm.lifetime.end.p0(i64 4, ptr %10) #10
  call void @llvm.lifetime.end.p0(i64 4, ptr %9) #10
  call void @llvm.lifetime.end.p0(i64 4, ptr %8) #10
  %65 = load { i64, i64 }, ptr %4, align 8
  ret { i64, i64 } %65
}

; Function Attrs: nounwind
define dso_local i32 @outrider_wait(ptr noundef %0, i32 noundef %1, i32 noundef %2) #0 {
  %4 = alloca i32, align 4
  %5 = alloca ptr, align 8
  %6 = alloca i32, align 4
  %7 = alloca i32, align 4
  %8 = alloca i32, align 4
  %9 = alloca i32, align 4
  %10 = alloca i32, align 4
  %11 = alloca i32, align 4
  %12 = alloca i32, align 4
  %13 = alloca i32, align 4
  %14 = alloca i32, align 4
  store ptr %0, ptr %5, align 8, !tbaa !4
  store i32 %1, ptr %6, align 4, !tbaa !8
  store i32 %2, ptr %7, align 4, !tbaa !8
  call void @llvm.lifetime.start.p0(i64 4, ptr %8) #10
  store i32 0, ptr %8, align 4, !tbaa !8
  br label %15

15:                                               ; preds = %32, %3
  %16 = load i32, ptr %8, align 4, !tbaa !8
  %17 = icmp slt i32 %16, 2000
  br i1 %17, label %19, label %18

18:                                               ; preds = %15
  store i32 2, ptr %9, align 4
  br label %35

19:                                               ; preds = %15
  call void @llvm.lifetime.start.p0(i64 4, ptr %10) #10
  %20 = load ptr, ptr %5, align 8, !tbaa !4
  %21 = load atomic i32, ptr %20 acquire, align 4
  store i32 %21, ptr %11, align 4
  %22 = load i32, ptr %11, align 4, !tbaa !8
  store i32 %22, ptr %10, align 4, !tbaa !8
  %23 = load i32, ptr %10, align 4, !tbaa !8
  %24 = load i32, ptr %6, align 4, !tbaa !8
  %25 = icmp ne i32 %23, %24
  br i1 %25, label %26, label %28

26:                                               ; preds = %19
  %27 = load i32, ptr %10, align 4, !tbaa !8
  store i32 %27, ptr %4, align 4
  store i32 1, ptr %9, align 4
  br label %29

28:                                               ; preds = %19
  store i32 0, ptr %9, align 4
  br label %29

29:                                               ; preds = %28, %26
  call void @llvm.lifetime.end.p0(i64 4, ptr %10) #10
  %30 = load i32, ptr %9, align 4
  switch i32 %30, label %35 [
    i32 0, label %31
  ]

31:                                               ; preds = %29
  br label %32

32:                                               ; preds = %31
  %33 = load i32, ptr %8, align 4, !tbaa !8
  %34 = add nsw i32 %33, 1
  store i32 %34, ptr %8, align 4, !tbaa !8
  br label %15, !llvm.loop !100

35:                                               ; preds = %29, %18
  call void @llvm.lifetime.end.p0(i64 4, ptr %8) #10
  %36 = load i32, ptr %9, align 4
  switch i32 %36, label %66 [
    i32 2, label %37
    i32 1, label %64
  ]

37:                                               ; preds = %35
  call void @llvm.lifetime.start.p0(i64 4, ptr %12) #10
  store i32 0, ptr %12, align 4, !tbaa !8
  br label %38

38:                                               ; preds = %57, %37
  %39 = load i32, ptr %12, align 4, !tbaa !8
  %40 = load i32, ptr %7, align 4, !tbaa !8
  %41 = icmp slt i32 %39, %40
  br i1 %41, label %43, label %42

42:                                               ; preds = %38
  store i32 5, ptr %9, align 4
  br label %60

43:                                               ; preds = %38
  call void @llvm.lifetime.start.p0(i64 4, ptr %13) #10
  %44 = load ptr, ptr %5, align 8, !tbaa !4
  %45 = load atomic i32, ptr %44 acquire, align 4
  store i32 %45, ptr %14, align 4
  %46 = load i32, ptr %14, align 4, !tbaa !8
  store i32 %46, ptr %13, align 4, !tbaa !8
  %47 = load i32, ptr %13, align 4, !tbaa !8
  %48 = load i32, ptr %6, align 4, !tbaa !8
  %49 = icmp ne i32 %47, %48
  br i1 %49, label %50, label %52

50:                                               ; preds = %43
  %51 = load i32, ptr %13, align 4, !tbaa !8
  store i32 %51, ptr %4, align 4
  store i32 1, ptr %9, align 4
  br label %54

52:                                               ; preds = %43
  %53 = call i32 @usleep(i32 noundef 40)
  store i32 0, ptr %9, align 4
  br label %54

54:                                               ; preds = %52, %50
  call void @llvm.lifetime.end.p0(i64 4, ptr %13) #10
  %55 = load i32, ptr %9, align 4
  switch i32 %55, label %60 [
    i32 0, label %56
  ]

56:                                               ; preds = %54
  br label %57

57:                                               ; preds = %56
  %58 = load i32, ptr %12, align 4, !tbaa !8
  %59 = add nsw i32 %58, 40
  store i32 %59, ptr %12, align 4, !tbaa !8
  br label %38, !llvm.loop !101

60:                                               ; preds = %54, %42
  call void @llvm.lifetime.end.p0(i64 4, ptr %12) #10
  %61 = load i32, ptr %9, align 4
  switch i32 %61, label %66 [
    i32 5, label %62
    i32 1, label %64
  ]

62:                                               ; preds = %60
  %63 = load i32, ptr %6, align 4, !tbaa !8
  store i32 %63, ptr %4, align 4
  br label %64

64:                                               ; preds = %62, %60, %35
  %65 = load i32, ptr %4, align 4
  ret i32 %65

66:                                               ; preds = %60, %35
  unreachable
}

declare i32 @usleep(i32 noundef) #5

; Function Attrs: nounwind
define dso_local void @outrider_signal(ptr noundef %0) #0 {
  %2 = alloca ptr, align 8
  %3 = alloca i32, align 4
  %4 = alloca i32, align 4
  store ptr %0, ptr %2, align 8, !tbaa !4
  %5 = load ptr, ptr %2, align 8, !tbaa !4
  store i32 1, ptr %3, align 4, !tbaa !8
  %6 = load i32, ptr %3, align 4
  %7 = atomicrmw add ptr %5, i32 %6 release, align 4
  %8 = add i32 %7, %6
  store i32 %8, ptr %4, align 4
  %9 = load i32, ptr %4, align 4, !tbaa !8
  ret void
}

; Function Attrs: nocallback nofree nounwind willreturn memory(argmem: readwrite)
declare void @llvm.memcpy.p0.p0.i64(ptr noalias nocapture writeonly, ptr noalias nocapture readonly, i64, i1 immarg) #6

declare i32 @sched_yield() #5

; Function Attrs: nounwind
define internal void @norm_rows(ptr noundef %0, ptr noundef %1, ptr noundef %2, i32 noundef %3) #0 {
  %5 = alloca ptr, align 8
  %6 = alloca ptr, align 8
  %7 = alloca ptr, align 8
  %8 = alloca i32, align 4
  %9 = alloca i32, align 4
  %10 = alloca i64, align 8
  store ptr %0, ptr %5, align 8, !tbaa !4
  store ptr %1, ptr %6, align 8, !tbaa !4
  store ptr %2, ptr %7, align 8, !tbaa !4
  store i32 %3, ptr %8, align 4, !tbaa !8
  call void @llvm.lifetime.start.p0(i64 4, ptr %9) #10
  %11 = load i32, ptr %8, align 4, !tbaa !8
  store i32 %11, ptr %9, align 4, !tbaa !8
  br label %12

12:                                               ; preds = %44, %4
  %13 = load i32, ptr %9, align 4, !tbaa !8
  %14 = load ptr, ptr %6, align 8, !tbaa !4
  %15 = getelementptr inbounds %struct.Batch, ptr %14, i32 0, i32 0
  %16 = load i32, ptr %15, align 8, !tbaa !10
  %17 = icmp slt i32 %13, %16
  br i1 %17, label %19, label %18

18:                                               ; preds = %12
  call void @llvm.lifetime.end.p0(i64 4, ptr %9) #10
  br label %50

19:                                               ; preds = %12
  call void @llvm.lifetime.start.p0(i64 8, ptr %10) #10
  %20 = load i32, ptr %9, align 4, !tbaa !8
  %21 = sext i32 %20 to i64
  %22 = load ptr, ptr %5, align 8, !tbaa !4
  %23 = getelementptr inbounds %struct.Model, ptr %22, i32 0, i32 1
  %24 = load i32, ptr %23, align 4, !tbaa !14
  %25 = sext i32 %24 to i64
  %26 = mul nsw i64 %21, %25
  store i64 %26, ptr %10, align 8, !tbaa !24
  %27 = load ptr, ptr %6, align 8, !tbaa !4
  %28 = getelementptr inbounds %struct.Batch, ptr %27, i32 0, i32 10
  %29 = load ptr, ptr %28, align 8, !tbaa !13
  %30 = load i64, ptr %10, align 8, !tbaa !24
  %31 = getelementptr inbounds float, ptr %29, i64 %30
  %32 = load ptr, ptr %7, align 8, !tbaa !4
  %33 = load ptr, ptr %5, align 8, !tbaa !4
  %34 = getelementptr inbounds %struct.Model, ptr %33, i32 0, i32 12
  %35 = load float, ptr %34, align 8, !tbaa !61
  %36 = load ptr, ptr %5, align 8, !tbaa !4
  %37 = getelementptr inbounds %struct.Model, ptr %36, i32 0, i32 1
  %38 = load i32, ptr %37, align 4, !tbaa !14
  %39 = load ptr, ptr %6, align 8, !tbaa !4
  %40 = getelementptr inbounds %struct.Batch, ptr %39, i32 0, i32 11
  %41 = load ptr, ptr %40, align 8, !tbaa !43
  %42 = load i64, ptr %10, align 8, !tbaa !24
  %43 = getelementptr inbounds float, ptr %41, i64 %42
  call void @rms_norm(ptr noundef %31, ptr noundef %32, float noundef %35, i32 noundef %38, ptr noundef %43)
  call void @llvm.lifetime.end.p0(i64 8, ptr %10) #10
  br label %44

44:                                               ; preds = %19
  %45 = load ptr, ptr %6, align 8, !tbaa !4
  %46 = getelementptr inbounds %struct.Batch, ptr %45, i32 0, i32 3
  %47 = load i32, ptr %46, align 4, !tbaa !17
  %48 = load i32, ptr %9, align 4, !tbaa !8
  %49 = add nsw i32 %48, %47
  store i32 %49, ptr %9, align 4, !tbaa !8
  br label %12, !llvm.loop !102

50:                                               ; preds = %18
  ret void
}

; Function Attrs: alwaysinline nounwind
define internal i32 @next_chunk(ptr noundef %0, i32 noundef %1) #3 {
  %3 = alloca ptr, align 8
  %4 = alloca i32, align 4
  %5 = alloca i32, align 4
  %6 = alloca i32, align 4
  store ptr %0, ptr %3, align 8, !tbaa !4
  store i32 %1, ptr %4, align 4, !tbaa !8
  %7 = load ptr, ptr %3, align 8, !tbaa !4
  %8 = getelementptr inbounds %struct.Batch, ptr %7, i32 0, i32 16
  %9 = load ptr, ptr %8, align 8, !tbaa !103
  %10 = load i32, ptr %4, align 4, !tbaa !8
  %11 = sext i32 %10 to i64
  %12 = getelementptr inbounds i32, ptr %9, i64 %11
  store i32 1, ptr %5, align 4, !tbaa !8
  %13 = load i32, ptr %5, align 4
  %14 = atomicrmw add ptr %12, i32 %13 monotonic, align 4
  store i32 %14, ptr %6, align 4
  %15 = load i32, ptr %6, align 4, !tbaa !8
  ret i32 %15
}

; Function Attrs: alwaysinline nounwind
define internal i32 @min32(i32 noundef %0, i32 noundef %1) #3 {
  %3 = alloca i32, align 4
  %4 = alloca i32, align 4
  store i32 %0, ptr %3, align 4, !tbaa !8
  store i32 %1, ptr %4, align 4, !tbaa !8
  %5 = load i32, ptr %3, align 4, !tbaa !8
  %6 = load i32, ptr %4, align 4, !tbaa !8
  %7 = icmp slt i32 %5, %6
  br i1 %7, label %8, label %10

8:                                                ; preds = %2
  %9 = load i32, ptr %3, align 4, !tbaa !8
  br label %12

10:                                               ; preds = %2
  %11 = load i32, ptr %4, align 4, !tbaa !8
  br label %12

12:                                               ; preds = %10, %8
  %13 = phi i32 [ %9, %8 ], [ %11, %10 ]
  ret i32 %13
}

; Function Attrs: nounwind
define internal void @linear_panel_bf16(ptr noundef %0, i32 noundef %1) #0 {
  %3 = alloca ptr, align 8
  %4 = alloca i32, align 4
  store ptr %0, ptr %3, align 8, !tbaa !4
  store i32 %1, ptr %4, align 4, !tbaa !8
  %5 = load ptr, ptr %3, align 8, !tbaa !4
  %6 = load i32, ptr %4, align 4, !tbaa !8
  call void @linear_panel_typed(ptr noundef %5, i32 noundef %6, i32 noundef 1)
  ret void
}

; Function Attrs: nounwind
define internal void @linear_panel_f32(ptr noundef %0, i32 noundef %1) #0 {
  %3 = alloca ptr, align 8
  %4 = alloca i32, align 4
  store ptr %0, ptr %3, align 8, !tbaa !4
  store i32 %1, ptr %4, align 4, !tbaa !8
  %5 = load ptr, ptr %3, align 8, !tbaa !4
  %6 = load i32, ptr %4, align 4, !tbaa !8
  call void @linear_panel_typed(ptr noundef %5, i32 noundef %6, i32 noundef 0)
  ret void
}

; Function Attrs: alwaysinline nounwind
define internal void @linear_panel_typed(ptr noundef %0, i32 noundef %1, i32 noundef %2) #3 {
  %4 = alloca ptr, align 8
  %5 = alloca i32, align 4
  %6 = alloca i32, align 4
  %7 = alloca i64, align 8
  %8 = alloca i64, align 8
  %9 = alloca ptr, align 8
  %10 = alloca i32, align 4
  %11 = alloca i32, align 4
  %12 = alloca i32, align 4
  %13 = alloca i32, align 4
  %14 = alloca %struct.Fetch, align 8
  store ptr %0, ptr %4, align 8, !tbaa !4
  store i32 %1, ptr %5, align 4, !tbaa !8
  store i32 %2, ptr %6, align 4, !tbaa !8
  call void @llvm.lifetime.start.p0(i64 8, ptr %7) #10
  %15 = load i32, ptr %6, align 4, !tbaa !8
  %16 = icmp ne i32 %15, 0
  %17 = zext i1 %16 to i64
  %18 = select i1 %16, i32 2, i32 4
  %19 = mul nsw i32 32, %18
  %20 = sext i32 %19 to i64
  store i64 %20, ptr %7, align 8, !tbaa !24
  call void @llvm.lifetime.start.p0(i64 8, ptr %8) #10
  %21 = load ptr, ptr %4, align 8, !tbaa !4
  %22 = getelementptr inbounds %struct.Linear, ptr %21, i32 0, i32 7
  %23 = load i32, ptr %22, align 4, !tbaa !55
  %24 = sext i32 %23 to i64
  %25 = load i64, ptr %7, align 8, !tbaa !24
  %26 = mul nsw i64 %24, %25
  store i64 %26, ptr %8, align 8, !tbaa !24
  call void @llvm.lifetime.start.p0(i64 8, ptr %9) #10
  %27 = load ptr, ptr %4, align 8, !tbaa !4
  %28 = getelementptr inbounds %struct.Linear, ptr %27, i32 0, i32 2
  %29 = load ptr, ptr %28, align 8, !tbaa !49
  %30 = load i32, ptr %5, align 4, !tbaa !8
  %31 = sext i32 %30 to i64
  %32 = load i64, ptr %8, align 8, !tbaa !24
  %33 = mul nsw i64 %31, %32
  %34 = getelementptr inbounds i8, ptr %29, i64 %33
  store ptr %34, ptr %9, align 8, !tbaa !4
  call void @llvm.lifetime.start.p0(i64 4, ptr %10) #10
  %35 = load ptr, ptr %4, align 8, !tbaa !4
  %36 = getelementptr inbounds %struct.Linear, ptr %35, i32 0, i32 6
  %37 = load i32, ptr %36, align 8, !tbaa !54
  %38 = add nsw i32 %37, 12
  %39 = sub nsw i32 %38, 1
  %40 = sdiv i32 %39, 12
  store i32 %40, ptr %10, align 4, !tbaa !8
  call void @llvm.lifetime.start.p0(i64 4, ptr %11) #10
  store i32 0, ptr %11, align 4, !tbaa !8
  br label %41

41:                                               ; preds = %204, %3
  %42 = load i32, ptr %11, align 4, !tbaa !8
  %43 = load i32, ptr %10, align 4, !tbaa !8
  %44 = icmp slt i32 %42, %43
  br i1 %44, label %46, label %45

45:                                               ; preds = %41
  call void @llvm.lifetime.end.p0(i64 4, ptr %11) #10
  br label %207

46:                                               ; preds = %41
  call void @llvm.lifetime.start.p0(i64 4, ptr %12) #10
  %47 = load ptr, ptr %4, align 8, !tbaa !4
  %48 = getelementptr inbounds %struct.Linear, ptr %47, i32 0, i32 6
  %49 = load i32, ptr %48, align 8, !tbaa !54
  %50 = sext i32 %49 to i64
  %51 = load i32, ptr %11, align 4, !tbaa !8
  %52 = sext i32 %51 to i64
  %53 = mul nsw i64 %50, %52
  %54 = load i32, ptr %10, align 4, !tbaa !8
  %55 = sext i32 %54 to i64
  %56 = sdiv i64 %53, %55
  %57 = trunc i64 %56 to i32
  store i32 %57, ptr %12, align 4, !tbaa !8
  call void @llvm.lifetime.start.p0(i64 4, ptr %13) #10
  %58 = load ptr, ptr %4, align 8, !tbaa !4
  %59 = getelementptr inbounds %struct.Linear, ptr %58, i32 0, i32 6
  %60 = load i32, ptr %59, align 8, !tbaa !54
  %61 = sext i32 %60 to i64
  %62 = load i32, ptr %11, align 4, !tbaa !8
  %63 = add nsw i32 %62, 1
  %64 = sext i32 %63 to i64
  %65 = mul nsw i64 %61, %64
  %66 = load i32, ptr %10, align 4, !tbaa !8
  %67 = sext i32 %66 to i64
  %68 = sdiv i64 %65, %67
  %69 = trunc i64 %68 to i32
  store i32 %69, ptr %13, align 4, !tbaa !8
  call void @llvm.lifetime.start.p0(i64 16, ptr %14) #10
  %70 = load ptr, ptr %9, align 8, !tbaa !4
  %71 = load i64, ptr %8, align 8, !tbaa !24
  %72 = load i64, ptr %7, align 8, !tbaa !24
  %73 = load i32, ptr %11, align 4, !tbaa !8
  %74 = load i32, ptr %10, align 4, !tbaa !8
  %75 = call { ptr, i64 } @plan_fetch(ptr noundef %70, i64 noundef %71, i64 noundef %72, i32 noundef %73, i32 noundef %74)
  %76 = getelementptr inbounds { ptr, i64 }, ptr %14, i32 0, i32 0
  %77 = extractvalue { ptr, i64 } %75, 0
  store ptr %77, ptr %76, align 8
  %78 = getelementptr inbounds { ptr, i64 }, ptr %14, i32 0, i32 1
  %79 = extractvalue { ptr, i64 } %75, 1
  store i64 %79, ptr %78, align 8
  %80 = load i32, ptr %13, align 4, !tbaa !8
  %81 = load i32, ptr %12, align 4, !tbaa !8
  %82 = sub nsw i32 %80, %81
  switch i32 %82, label %203 [
    i32 1, label %83
    i32 2, label %93
    i32 3, label %103
    i32 4, label %113
    i32 5, label %123
    i32 6, label %133
    i32 7, label %143
    i32 8, label %153
    i32 9, label %163
    i32 10, label %173
    i32 11, label %183
    i32 12, label %193
  ]

83:                                               ; preds = %46
  %84 = load ptr, ptr %4, align 8, !tbaa !4
  %85 = load ptr, ptr %9, align 8, !tbaa !4
  %86 = load i32, ptr %5, align 4, !tbaa !8
  %87 = load i32, ptr %12, align 4, !tbaa !8
  %88 = load i32, ptr %6, align 4, !tbaa !8
  %89 = getelementptr inbounds { ptr, i64 }, ptr %14, i32 0, i32 0
  %90 = load ptr, ptr %89, align 8
  %91 = getelementptr inbounds { ptr, i64 }, ptr %14, i32 0, i32 1
  %92 = load i64, ptr %91, align 8
  call void @linear_tile(ptr noundef %84, ptr noundef %85, ptr %90, i64 %92, i32 noundef %86, i32 noundef %87, i32 noundef 1, i32 noundef %88)
  br label %203

93:                                               ; preds = %46
  %94 = load ptr, ptr %4, align 8, !tbaa !4
  %95 = load ptr, ptr %9, align 8, !tbaa !4
  %96 = load i32, ptr %5, align 4, !tbaa !8
  %97 = load i32, ptr %12, align 4, !tbaa !8
  %98 = load i32, ptr %6, align 4, !tbaa !8
  %99 = getelementptr inbounds { ptr, i64 }, ptr %14, i32 0, i32 0
  %100 = load ptr, ptr %99, align 8
  %101 = getelementptr inbounds { ptr, i64 }, ptr %14, i32 0, i32 1
  %102 = load i64, ptr %101, align 8
  call void @linear_tile(ptr noundef %94, ptr noundef %95, ptr %100, i64 %102, i32 noundef %96, i32 noundef %97, i32 noundef 2, i32 noundef %98)
  br label %203

103:                                              ; preds = %46
  %104 = load ptr, ptr %4, align 8, !tbaa !4
  %105 = load ptr, ptr %9, align 8, !tbaa !4
  %106 = load i32, ptr %5, align 4, !tbaa !8
  %107 = load i32, ptr %12, align 4, !tbaa !8
  %108 = load i32, ptr %6, align 4, !tbaa !8
  %109 = getelementptr inbounds { ptr, i64 }, ptr %14, i32 0, i32 0
  %110 = load ptr, ptr %109, align 8
  %111 = getelementptr inbounds { ptr, i64 }, ptr %14, i32 0, i32 1
  %112 = load i64, ptr %111, align 8
  call void @linear_tile(ptr noundef %104, ptr noundef %105, ptr %110, i64 %112, i32 noundef %106, i32 noundef %107, i32 noundef 3, i32 noundef %108)
  br label %203

113:                                              ; preds = %46
  %114 = load ptr, ptr %4, align 8, !tbaa !4
  %115 = load ptr, ptr %9, align 8, !tbaa !4
  %116 = load i32, ptr %5, align 4, !tbaa !8
  %117 = load i32, ptr %12, align 4, !tbaa !8
  %118 = load i32, ptr %6, align 4, !tbaa !8
  %119 = getelementptr inbounds { ptr, i64 }, ptr %14, i32 0, i32 0
  %120 = load ptr, ptr %119, align 8
  %121 = getelementptr inbounds { ptr, i64 }, ptr %14, i32 0, i32 1
  %122 = load i64, ptr %121, align 8
  call void @linear_tile(ptr noundef %114, ptr noundef %115, ptr %120, i64 %122, i32 noundef %116, i32 noundef %117, i32 noundef 4, i32 noundef %118)
  br label %203

123:                                              ; preds = %46
  %124 = load ptr, ptr %4, align 8, !tbaa !4
  %125 = load ptr, ptr %9, align 8, !tbaa !4
  %126 = load i32, ptr %5, align 4, !tbaa !8
  %127 = load i32, ptr %12, align 4, !tbaa !8
  %128 = load i32, ptr %6, align 4, !tbaa !8
  %129 = getelementptr inbounds { ptr, i64 }, ptr %14, i32 0, i32 0
  %130 = load ptr, ptr %129, align 8
  %131 = getelementptr inbounds { ptr, i64 }, ptr %14, i32 0, i32 1
  %132 = load i64, ptr %131, align 8
  call void @linear_tile(ptr noundef %124, ptr noundef %125, ptr %130, i64 %132, i32 noundef %126, i32 noundef %127, i32 noundef 5, i32 noundef %128)
  br label %203

133:                                              ; preds = %46
  %134 = load ptr, ptr %4, align 8, !tbaa !4
  %135 = load ptr, ptr %9, align 8, !tbaa !4
  %136 = load i32, ptr %5, align 4, !tbaa !8
  %137 = load i32, ptr %12, align 4, !tbaa !8
  %138 = load i32, ptr %6, align 4, !tbaa !8
  %139 = getelementptr inbounds { ptr, i64 }, ptr %14, i32 0, i32 0
  %140 = load ptr, ptr %139, align 8
  %141 = getelementptr inbounds { ptr, i64 }, ptr %14, i32 0, i32 1
  %142 = load i64, ptr %141, align 8
  call void @linear_tile(ptr noundef %134, ptr noundef %135, ptr %140, i64 %142, i32 noundef %136, i32 noundef %137, i32 noundef 6, i32 noundef %138)
  br label %203

143:                                              ; preds = %46
  %144 = load ptr, ptr %4, align 8, !tbaa !4
  %145 = load ptr, ptr %9, align 8, !tbaa !4
  %146 = load i32, ptr %5, align 4, !tbaa !8
  %147 = load i32, ptr %12, align 4, !tbaa !8
  %148 = load i32, ptr %6, align 4, !tbaa !8
  %149 = getelementptr inbounds { ptr, i64 }, ptr %14, i32 0, i32 0
  %150 = load ptr, ptr %149, align 8
  %151 = getelementptr inbounds { ptr, i64 }, ptr %14, i32 0, i32 1
  %152 = load i64, ptr %151, align 8
  call void @linear_tile(ptr noundef %144, ptr noundef %145, ptr %150, i64 %152, i32 noundef %146, i32 noundef %147, i32 noundef 7, i32 noundef %148)
  br label %203

153:                                              ; preds = %46
  %154 = load ptr, ptr %4, align 8, !tbaa !4
  %155 = load ptr, ptr %9, align 8, !tbaa !4
  %156 = load i32, ptr %5, align 4, !tbaa !8
  %157 = load i32, ptr %12, align 4, !tbaa !8
  %158 = load i32, ptr %6, align 4, !tbaa !8
  %159 = getelementptr inbounds { ptr, i64 }, ptr %14, i32 0, i32 0
  %160 = load ptr, ptr %159, align 8
  %161 = getelementptr inbounds { ptr, i64 }, ptr %14, i32 0, i32 1
  %162 = load i64, ptr %161, align 8
  call void @linear_tile(ptr noundef %154, ptr noundef %155, ptr %160, i64 %162, i32 noundef %156, i32 noundef %157, i32 noundef 8, i32 noundef %158)
  br label %203

163:                                              ; preds = %46
  %164 = load ptr, ptr %4, align 8, !tbaa !4
  %165 = load ptr, ptr %9, align 8, !tbaa !4
  %166 = load i32, ptr %5, align 4, !tbaa !8
  %167 = load i32, ptr %12, align 4, !tbaa !8
  %168 = load i32, ptr %6, align 4, !tbaa !8
  %169 = getelementptr inbounds { ptr, i64 }, ptr %14, i32 0, i32 0
  %170 = load ptr, ptr %169, align 8
  %171 = getelementptr inbounds { ptr, i64 }, ptr %14, i32 0, i32 1
  %172 = load i64, ptr %171, align 8
  call void @linear_tile(ptr noundef %164, ptr noundef %165, ptr %170, i64 %172, i32 noundef %166, i32 noundef %167, i32 noundef 9, i32 noundef %168)
  br label %203

173:                                              ; preds = %46
  %174 = load ptr, ptr %4, align 8, !tbaa !4
  %175 = load ptr, ptr %9, align 8, !tbaa !4
  %176 = load i32, ptr %5, align 4, !tbaa !8
  %177 = load i32, ptr %12, align 4, !tbaa !8
  %178 = load i32, ptr %6, align 4, !tbaa !8
  %179 = getelementptr inbounds { ptr, i64 }, ptr %14, i32 0, i32 0
  %180 = load ptr, ptr %179, align 8
  %181 = getelementptr inbounds { ptr, i64 }, ptr %14, i32 0, i32 1
  %182 = load i64, ptr %181, align 8
  call void @linear_tile(ptr noundef %174, ptr noundef %175, ptr %180, i64 %182, i32 noundef %176, i32 noundef %177, i32 noundef 10, i32 noundef %178)
  br label %203

183:                                              ; preds = %46
  %184 = load ptr, ptr %4, align 8, !tbaa !4
  %185 = load ptr, ptr %9, align 8, !tbaa !4
  %186 = load i32, ptr %5, align 4, !tbaa !8
  %187 = load i32, ptr %12, align 4, !tbaa !8
  %188 = load i32, ptr %6, align 4, !tbaa !8
  %189 = getelementptr inbounds { ptr, i64 }, ptr %14, i32 0, i32 0
  %190 = load ptr, ptr %189, align 8
  %191 = getelementptr inbounds { ptr, i64 }, ptr %14, i32 0, i32 1
  %192 = load i64, ptr %191, align 8
  call void @linear_tile(ptr noundef %184, ptr noundef %185, ptr %190, i64 %192, i32 noundef %186, i32 noundef %187, i32 noundef 11, i32 noundef %188)
  br label %203

193:                                              ; preds = %46
  %194 = load ptr, ptr %4, align 8, !tbaa !4
  %195 = load ptr, ptr %9, align 8, !tbaa !4
  %196 = load i32, ptr %5, align 4, !tbaa !8
  %197 = load i32, ptr %12, align 4, !tbaa !8
  %198 = load i32, ptr %6, align 4, !tbaa !8
  %199 = getelementptr inbounds { ptr, i64 }, ptr %14, i32 0, i32 0
  %200 = load ptr, ptr %199, align 8
  %201 = getelementptr inbounds { ptr, i64 }, ptr %14, i32 0, i32 1
  %202 = load i64, ptr %201, align 8
  call void @linear_tile(ptr noundef %194, ptr noundef %195, ptr %200, i64 %202, i32 noundef %196, i32 noundef %197, i32 noundef 12, i32 noundef %198)
  br label %203

203:                                              ; preds = %46, %193, %183, %173, %163, %153, %143, %133, %123, %113, %103, %93, %83
  call void @llvm.lifetime.end.p0(i64 16, ptr %14) #10
  call void @llvm.lifetime.end.p0(i64 4, ptr %13) #10
  call void @llvm.lifetime.end.p0(i64 4, ptr %12) #10
  br label %204

204:                                              ; preds = %203
  %205 = load i32, ptr %11, align 4, !tbaa !8
  %206 = add nsw i32 %205, 1
  store i32 %206, ptr %11, align 4, !tbaa !8
  br label %41, !llvm.loop !104

207:                                              ; preds = %45
  call void @llvm.lifetime.end.p0(i64 4, ptr %10) #10
  call void @llvm.lifetime.end.p0(i64 8, ptr %9) #10
  call void @llvm.lifetime.end.p0(i64 8, ptr %8) #10
  call void @llvm.lifetime.end.p0(i64 8, ptr %7) #10
  ret void
}

; Function Attrs: alwaysinline nounwind
define internal { ptr, i64 } @plan_fetch(ptr noundef %0, i64 noundef %1, i64 noundef %2, i32 noundef %3, i32 noundef %4) #3 {
  %6 = alloca %struct.Fetch, align 8
  %7 = alloca ptr, align 8
  %8 = alloca i64, align 8
  %9 = alloca i64, align 8
  %10 = alloca i32, align 4
  %11 = alloca i32, align 4
  store ptr %0, ptr %7, align 8, !tbaa !4
  store i64 %1, ptr %8, align 8, !tbaa !24
  store i64 %2, ptr %9, align 8, !tbaa !24
  store i32 %3, ptr %10, align 4, !tbaa !8
  store i32 %4, ptr %11, align 4, !tbaa !8
  %12 = load i32, ptr %10, align 4, !tbaa !8
  %13 = icmp eq i32 %12, 0
  br i1 %13, label %14, label %20

14:                                               ; preds = %5
  %15 = getelementptr inbounds %struct.Fetch, ptr %6, i32 0, i32 0
  %16 = load ptr, ptr %7, align 8, !tbaa !4
  %17 = getelementptr inbounds i8, ptr %16, i64 16384
  store ptr %17, ptr %15, align 8, !tbaa !105
  %18 = getelementptr inbounds %struct.Fetch, ptr %6, i32 0, i32 1
  %19 = load i64, ptr %9, align 8, !tbaa !24
  store i64 %19, ptr %18, align 8, !tbaa !107
  br label %41

20:                                               ; preds = %5
  %21 = getelementptr inbounds %struct.Fetch, ptr %6, i32 0, i32 0
  %22 = load ptr, ptr %7, align 8, !tbaa !4
  %23 = load i64, ptr %8, align 8, !tbaa !24
  %24 = getelementptr inbounds i8, ptr %22, i64 %23
  %25 = load i64, ptr %8, align 8, !tbaa !24
  %26 = load i32, ptr %10, align 4, !tbaa !8
  %27 = sub nsw i32 %26, 1
  %28 = sext i32 %27 to i64
  %29 = mul nsw i64 %25, %28
  %30 = load i32, ptr %11, align 4, !tbaa !8
  %31 = sub nsw i32 %30, 1
  %32 = sext i32 %31 to i64
  %33 = sdiv i64 %29, %32
  %34 = getelementptr inbounds i8, ptr %24, i64 %33
  store ptr %34, ptr %21, align 8, !tbaa !105
  %35 = getelementptr inbounds %struct.Fetch, ptr %6, i32 0, i32 1
  %36 = load i64, ptr %9, align 8, !tbaa !24
  %37 = load i32, ptr %11, align 4, !tbaa !8
  %38 = sub nsw i32 %37, 1
  %39 = sext i32 %38 to i64
  %40 = sdiv i64 %36, %39
  store i64 %40, ptr %35, align 8, !tbaa !107
  br label %41

41:                                               ; preds = %20, %14
  %42 = load { ptr, i64 }, ptr %6, align 8
  ret { ptr, i64 } %42
}

; Function Attrs: alwaysinline nounwind
define internal void @linear_tile(ptr noundef %0, ptr noundef %1, ptr %2, i64 %3, i32 noundef %4, i32 noundef %5, i32 noundef %6, i32 noundef %7) #4 {
  %9 = alloca %struct.Fetch, align 8
  %10 = alloca ptr, align 8
  %11 = alloca ptr, align 8
  %12 = alloca i32, align 4
  %13 = alloca i32, align 4
  %14 = alloca i32, align 4
  %15 = alloca i32, align 4
  %16 = alloca [12 x <16 x float>], align 16
  %17 = alloca [12 x <16 x float>], align 16
  %18 = alloca <16 x float>, align 4
  %19 = alloca <16 x float>, align 4
  %20 = alloca ptr, align 8
  %21 = alloca i32, align 4
  %22 = alloca i32, align 4
  %23 = alloca i32, align 4
  %24 = alloca i32, align 4
  %25 = alloca <16 x float>, align 4
  %26 = alloca i32, align 4
  %27 = alloca ptr, align 8
  %28 = alloca <16 x float>, align 4
  %29 = getelementptr inbounds { ptr, i64 }, ptr %9, i32 0, i32 0
  store ptr %2, ptr %29, align 8
  %30 = getelementptr inbounds { ptr, i64 }, ptr %9, i32 0, i32 1
  store i64 %3, ptr %30, align 8
  store ptr %0, ptr %10, align 8, !tbaa !4
  store ptr %1, ptr %11, align 8, !tbaa !4
  store i32 %4, ptr %12, align 4, !tbaa !8
  store i32 %5, ptr %13, align 4, !tbaa !8
  store i32 %6, ptr %14, align 4, !tbaa !8
  store i32 %7, ptr %15, align 4, !tbaa !8
  call void @llvm.lifetime.start.p0(i64 768, ptr %16) #10
  call void @llvm.lifetime.start.p0(i64 768, ptr %17) #10
  call void @llvm.lifetime.start.p0(i64 64, ptr %18) #10
  call void @llvm.lifetime.start.p0(i64 64, ptr %19) #10
  call void @llvm.lifetime.start.p0(i64 8, ptr %20) #10
  %31 = load ptr, ptr %10, align 8, !tbaa !4
  %32 = getelementptr inbounds %struct.Linear, ptr %31, i32 0, i32 0
  %33 = load ptr, ptr %32, align 8, !tbaa !44
  %34 = load i32, ptr %13, align 4, !tbaa !8
  %35 = sext i32 %34 to i64
  %36 = load ptr, ptr %10, align 8, !tbaa !4
  %37 = getelementptr inbounds %struct.Linear, ptr %36, i32 0, i32 4
  %38 = load i64, ptr %37, align 8, !tbaa !51
  %39 = mul nsw i64 %35, %38
  %40 = getelementptr inbounds float, ptr %33, i64 %39
  store ptr %40, ptr %20, align 8, !tbaa !4
  call void @llvm.lifetime.start.p0(i64 4, ptr %21) #10
  store i32 0, ptr %21, align 4, !tbaa !8
  br label %41

41:                                               ; preds = %54, %8
  %42 = load i32, ptr %21, align 4, !tbaa !8
  %43 = load i32, ptr %14, align 4, !tbaa !8
  %44 = icmp slt i32 %42, %43
  br i1 %44, label %46, label %45

45:                                               ; preds = %41
  call void @llvm.lifetime.end.p0(i64 4, ptr %21) #10
  br label %57

46:                                               ; preds = %41
  %47 = call <16 x float> @splat(float noundef 0.000000e+00)
  %48 = load i32, ptr %21, align 4, !tbaa !8
  %49 = sext i32 %48 to i64
  %50 = getelementptr inbounds [12 x <16 x float>], ptr %17, i64 0, i64 %49
  store <16 x float> %47, ptr %50, align 16, !tbaa !74
  %51 = load i32, ptr %21, align 4, !tbaa !8
  %52 = sext i32 %51 to i64
  %53 = getelementptr inbounds [12 x <16 x float>], ptr %16, i64 0, i64 %52
  store <16 x float> %47, ptr %53, align 16, !tbaa !74
  br label %54

54:                                               ; preds = %46
  %55 = load i32, ptr %21, align 4, !tbaa !8
  %56 = add nsw i32 %55, 1
  store i32 %56, ptr %21, align 4, !tbaa !8
  br label %41, !llvm.loop !108

57:                                               ; preds = %45
  call void @llvm.lifetime.start.p0(i64 4, ptr %22) #10
  store i32 0, ptr %22, align 4, !tbaa !8
  br label %58

58:                                               ; preds = %121, %57
  %59 = load i32, ptr %22, align 4, !tbaa !8
  %60 = load ptr, ptr %10, align 8, !tbaa !4
  %61 = getelementptr inbounds %struct.Linear, ptr %60, i32 0, i32 7
  %62 = load i32, ptr %61, align 4, !tbaa !55
  %63 = icmp slt i32 %59, %62
  br i1 %63, label %65, label %64

64:                                               ; preds = %58
  store i32 5, ptr %23, align 4
  call void @llvm.lifetime.end.p0(i64 4, ptr %22) #10
  br label %124

65:                                               ; preds = %58
  %66 = load ptr, ptr %11, align 8, !tbaa !4
  %67 = load i32, ptr %22, align 4, !tbaa !8
  %68 = sext i32 %67 to i64
  %69 = load i32, ptr %15, align 4, !tbaa !8
  call void @load_panel_row(ptr noundef %66, i64 noundef %68, i32 noundef %69, ptr noundef %18, ptr noundef %19)
  %70 = getelementptr inbounds %struct.Fetch, ptr %9, i32 0, i32 0
  %71 = load ptr, ptr %70, align 8, !tbaa !105
  %72 = load i32, ptr %22, align 4, !tbaa !8
  %73 = sext i32 %72 to i64
  %74 = getelementptr inbounds %struct.Fetch, ptr %9, i32 0, i32 1
  %75 = load i64, ptr %74, align 8, !tbaa !107
  %76 = mul nsw i64 %73, %75
  %77 = getelementptr inbounds i8, ptr %71, i64 %76
  call void @llvm.prefetch.p0(ptr %77, i32 0, i32 2, i32 1)
  call void @llvm.lifetime.start.p0(i64 4, ptr %24) #10
  store i32 0, ptr %24, align 4, !tbaa !8
  br label %78

78:                                               ; preds = %117, %65
  %79 = load i32, ptr %24, align 4, !tbaa !8
  %80 = load i32, ptr %14, align 4, !tbaa !8
  %81 = icmp slt i32 %79, %80
  br i1 %81, label %83, label %82

82:                                               ; preds = %78
  store i32 8, ptr %23, align 4
  call void @llvm.lifetime.end.p0(i64 4, ptr %24) #10
  br label %120

83:                                               ; preds = %78
  call void @llvm.lifetime.start.p0(i64 64, ptr %25) #10
  %84 = load ptr, ptr %20, align 8, !tbaa !4
  %85 = load i32, ptr %24, align 4, !tbaa !8
  %86 = sext i32 %85 to i64
  %87 = load ptr, ptr %10, align 8, !tbaa !4
  %88 = getelementptr inbounds %struct.Linear, ptr %87, i32 0, i32 4
  %89 = load i64, ptr %88, align 8, !tbaa !51
  %90 = mul nsw i64 %86, %89
  %91 = load i32, ptr %22, align 4, !tbaa !8
  %92 = sext i32 %91 to i64
  %93 = add nsw i64 %90, %92
  %94 = getelementptr inbounds float, ptr %84, i64 %93
  %95 = load float, ptr %94, align 4, !tbaa !28
  %96 = call <16 x float> @splat(float noundef %95)
  store <16 x float> %96, ptr %25, align 4, !tbaa !74
  %97 = load <16 x float>, ptr %25, align 4, !tbaa !74
  %98 = load <16 x float>, ptr %18, align 4, !tbaa !74
  %99 = load i32, ptr %24, align 4, !tbaa !8
  %100 = sext i32 %99 to i64
  %101 = getelementptr inbounds [12 x <16 x float>], ptr %16, i64 0, i64 %100
  %102 = load <16 x float>, ptr %101, align 16, !tbaa !74
  %103 = call <16 x float> @fma16(<16 x float> noundef %97, <16 x float> noundef %98, <16 x float> noundef %102)
  %104 = load i32, ptr %24, align 4, !tbaa !8
  %105 = sext i32 %104 to i64
  %106 = getelementptr inbounds [12 x <16 x float>], ptr %16, i64 0, i64 %105
  store <16 x float> %103, ptr %106, align 16, !tbaa !74
  %107 = load <16 x float>, ptr %25, align 4, !tbaa !74
  %108 = load <16 x float>, ptr %19, align 4, !tbaa !74
  %109 = load i32, ptr %24, align 4, !tbaa !8
  %110 = sext i32 %109 to i64
  %111 = getelementptr inbounds [12 x <16 x float>], ptr %17, i64 0, i64 %110
  %112 = load <16 x float>, ptr %111, align 16, !tbaa !74
  %113 = call <16 x float> @fma16(<16 x float> noundef %107, <16 x float> noundef %108, <16 x float> noundef %112)
  %114 = load i32, ptr %24, align 4, !tbaa !8
  %115 = sext i32 %114 to i64
  %116 = getelementptr inbounds [12 x <16 x float>], ptr %17, i64 0, i64 %115
  store <16 x float> %113, ptr %116, align 16, !tbaa !74
  call void @llvm.lifetime.end.p0(i64 64, ptr %25) #10
  br label %117

117:                                              ; preds = %83
  %118 = load i32, ptr %24, align 4, !tbaa !8
  %119 = add nsw i32 %118, 1
  store i32 %119, ptr %24, align 4, !tbaa !8
  br label %78, !llvm.loop !110

120:                                              ; preds = %82
  br label %121

121:                                              ; preds = %120
  %122 = load i32, ptr %22, align 4, !tbaa !8
  %123 = add nsw i32 %122, 1
  store i32 %123, ptr %22, align 4, !tbaa !8
  br label %58, !llvm.loop !111

124:                                              ; preds = %64
  call void @llvm.lifetime.start.p0(i64 4, ptr %26) #10
  store i32 0, ptr %26, align 4, !tbaa !8
  br label %125

125:                                              ; preds = %256, %124
  %126 = load i32, ptr %26, align 4, !tbaa !8
  %127 = load i32, ptr %14, align 4, !tbaa !8
  %128 = icmp slt i32 %126, %127
  br i1 %128, label %130, label %129

129:                                              ; preds = %125
  store i32 11, ptr %23, align 4
  call void @llvm.lifetime.end.p0(i64 4, ptr %26) #10
  br label %259

130:                                              ; preds = %125
  call void @llvm.lifetime.start.p0(i64 8, ptr %27) #10
  %131 = load ptr, ptr %10, align 8, !tbaa !4
  %132 = getelementptr inbounds %struct.Linear, ptr %131, i32 0, i32 1
  %133 = load ptr, ptr %132, align 8, !tbaa !47
  %134 = load i32, ptr %13, align 4, !tbaa !8
  %135 = load i32, ptr %26, align 4, !tbaa !8
  %136 = add nsw i32 %134, %135
  %137 = sext i32 %136 to i64
  %138 = load ptr, ptr %10, align 8, !tbaa !4
  %139 = getelementptr inbounds %struct.Linear, ptr %138, i32 0, i32 5
  %140 = load i64, ptr %139, align 8, !tbaa !53
  %141 = mul nsw i64 %137, %140
  %142 = getelementptr inbounds float, ptr %133, i64 %141
  store ptr %142, ptr %27, align 8, !tbaa !4
  %143 = load ptr, ptr %10, align 8, !tbaa !4
  %144 = getelementptr inbounds %struct.Linear, ptr %143, i32 0, i32 8
  %145 = load i32, ptr %144, align 8, !tbaa !56
  %146 = icmp eq i32 %145, 2
  br i1 %146, label %147, label %169

147:                                              ; preds = %130
  call void @llvm.lifetime.start.p0(i64 64, ptr %28) #10
  %148 = load i32, ptr %26, align 4, !tbaa !8
  %149 = sext i32 %148 to i64
  %150 = getelementptr inbounds [12 x <16 x float>], ptr %16, i64 0, i64 %149
  %151 = load <16 x float>, ptr %150, align 16, !tbaa !74
  store <16 x float> %151, ptr %28, align 4, !tbaa !74
  %152 = load ptr, ptr %27, align 8, !tbaa !4
  %153 = load i32, ptr %12, align 4, !tbaa !8
  %154 = mul nsw i32 %153, 16
  %155 = sext i32 %154 to i64
  %156 = getelementptr inbounds float, ptr %152, i64 %155
  %157 = load <16 x float>, ptr %28, align 4, !tbaa !74
  %158 = call <16 x float> @splat(float noundef 1.000000e+00)
  %159 = load <16 x float>, ptr %28, align 4, !tbaa !74
  %160 = fneg <16 x float> %159
  %161 = call <16 x float> @exp16(<16 x float> noundef %160)
  %162 = fadd <16 x float> %158, %161
  %163 = fdiv <16 x float> %157, %162
  %164 = load i32, ptr %26, align 4, !tbaa !8
  %165 = sext i32 %164 to i64
  %166 = getelementptr inbounds [12 x <16 x float>], ptr %17, i64 0, i64 %165
  %167 = load <16 x float>, ptr %166, align 16, !tbaa !74
  %168 = fmul <16 x float> %163, %167
  call void @store(ptr noundef %156, <16 x float> noundef %168)
  store i32 13, ptr %23, align 4
  call void @llvm.lifetime.end.p0(i64 64, ptr %28) #10
  br label %253

169:                                              ; preds = %130
  %170 = load i32, ptr %12, align 4, !tbaa !8
  %171 = mul nsw i32 %170, 32
  %172 = load ptr, ptr %27, align 8, !tbaa !4
  %173 = sext i32 %171 to i64
  %174 = getelementptr inbounds float, ptr %172, i64 %173
  store ptr %174, ptr %27, align 8, !tbaa !4
  %175 = load ptr, ptr %10, align 8, !tbaa !4
  %176 = getelementptr inbounds %struct.Linear, ptr %175, i32 0, i32 8
  %177 = load i32, ptr %176, align 8, !tbaa !56
  %178 = icmp eq i32 %177, 1
  br i1 %178, label %179, label %201

179:                                              ; preds = %169
  %180 = load ptr, ptr %27, align 8, !tbaa !4
  %181 = call <16 x float> @load(ptr noundef %180)
  %182 = load i32, ptr %26, align 4, !tbaa !8
  %183 = sext i32 %182 to i64
  %184 = getelementptr inbounds [12 x <16 x float>], ptr %16, i64 0, i64 %183
  %185 = load <16 x float>, ptr %184, align 16, !tbaa !74
  %186 = fadd <16 x float> %181, %185
  %187 = load i32, ptr %26, align 4, !tbaa !8
  %188 = sext i32 %187 to i64
  %189 = getelementptr inbounds [12 x <16 x float>], ptr %16, i64 0, i64 %188
  store <16 x float> %186, ptr %189, align 16, !tbaa !74
  %190 = load ptr, ptr %27, align 8, !tbaa !4
  %191 = getelementptr inbounds float, ptr %190, i64 16
  %192 = call <16 x float> @load(ptr noundef %191)
  %193 = load i32, ptr %26, align 4, !tbaa !8
  %194 = sext i32 %193 to i64
  %195 = getelementptr inbounds [12 x <16 x float>], ptr %17, i64 0, i64 %194
  %196 = load <16 x float>, ptr %195, align 16, !tbaa !74
  %197 = fadd <16 x float> %192, %196
  %198 = load i32, ptr %26, align 4, !tbaa !8
  %199 = sext i32 %198 to i64
  %200 = getelementptr inbounds [12 x <16 x float>], ptr %17, i64 0, i64 %199
  store <16 x float> %197, ptr %200, align 16, !tbaa !74
  br label %241

201:                                              ; preds = %169
  %202 = load ptr, ptr %10, align 8, !tbaa !4
  %203 = getelementptr inbounds %struct.Linear, ptr %202, i32 0, i32 3
  %204 = load ptr, ptr %203, align 8, !tbaa !50
  %205 = icmp ne ptr %204, null
  br i1 %205, label %206, label %240

206:                                              ; preds = %201
  %207 = load i32, ptr %26, align 4, !tbaa !8
  %208 = sext i32 %207 to i64
  %209 = getelementptr inbounds [12 x <16 x float>], ptr %16, i64 0, i64 %208
  %210 = load <16 x float>, ptr %209, align 16, !tbaa !74
  %211 = load ptr, ptr %10, align 8, !tbaa !4
  %212 = getelementptr inbounds %struct.Linear, ptr %211, i32 0, i32 3
  %213 = load ptr, ptr %212, align 8, !tbaa !50
  %214 = load i32, ptr %12, align 4, !tbaa !8
  %215 = mul nsw i32 %214, 32
  %216 = sext i32 %215 to i64
  %217 = getelementptr inbounds float, ptr %213, i64 %216
  %218 = call <16 x float> @load(ptr noundef %217)
  %219 = fadd <16 x float> %210, %218
  %220 = load i32, ptr %26, align 4, !tbaa !8
  %221 = sext i32 %220 to i64
  %222 = getelementptr inbounds [12 x <16 x float>], ptr %16, i64 0, i64 %221
  store <16 x float> %219, ptr %222, align 16, !tbaa !74
  %223 = load i32, ptr %26, align 4, !tbaa !8
  %224 = sext i32 %223 to i64
  %225 = getelementptr inbounds [12 x <16 x float>], ptr %17, i64 0, i64 %224
  %226 = load <16 x float>, ptr %225, align 16, !tbaa !74
  %227 = load ptr, ptr %10, align 8, !tbaa !4
  %228 = getelementptr inbounds %struct.Linear, ptr %227, i32 0, i32 3
  %229 = load ptr, ptr %228, align 8, !tbaa !50
  %230 = load i32, ptr %12, align 4, !tbaa !8
  %231 = mul nsw i32 %230, 32
  %232 = sext i32 %231 to i64
  %233 = getelementptr inbounds float, ptr %229, i64 %232
  %234 = getelementptr inbounds float, ptr %233, i64 16
  %235 = call <16 x float> @load(ptr noundef %234)
  %236 = fadd <16 x float> %226, %235
  %237 = load i32, ptr %26, align 4, !tbaa !8
  %238 = sext i32 %237 to i64
  %239 = getelementptr inbounds [12 x <16 x float>], ptr %17, i64 0, i64 %238
  store <16 x float> %236, ptr %239, align 16, !tbaa !74
  br label %240

240:                                              ; preds = %206, %201
  br label %241

241:                                              ; preds = %240, %179
  %242 = load ptr, ptr %27, align 8, !tbaa !4
  %243 = load i32, ptr %26, align 4, !tbaa !8
  %244 = sext i32 %243 to i64
  %245 = getelementptr inbounds [12 x <16 x float>], ptr %16, i64 0, i64 %244
  %246 = load <16 x float>, ptr %245, align 16, !tbaa !74
  call void @store(ptr noundef %242, <16 x float> noundef %246)
  %247 = load ptr, ptr %27, align 8, !tbaa !4
  %248 = getelementptr inbounds float, ptr %247, i64 16
  %249 = load i32, ptr %26, align 4, !tbaa !8
  %250 = sext i32 %249 to i64
  %251 = getelementptr inbounds [12 x <16 x float>], ptr %17, i64 0, i64 %250
  %252 = load <16 x float>, ptr %251, align 16, !tbaa !74
  call void @store(ptr noundef %248, <16 x float> noundef %252)
  store i32 0, ptr %23, align 4
  br label %253

253:                                              ; preds = %241, %147
  call void @llvm.lifetime.end.p0(i64 8, ptr %27) #10
  %254 = load i32, ptr %23, align 4
  switch i32 %254, label %260 [
    i32 0, label %255
    i32 13, label %256
  ]

255:                                              ; preds = %253
  br label %256

256:                                              ; preds = %255, %253
  %257 = load i32, ptr %26, align 4, !tbaa !8
  %258 = add nsw i32 %257, 1
  store i32 %258, ptr %26, align 4, !tbaa !8
  br label %125, !llvm.loop !112

259:                                              ; preds = %129
  call void @llvm.lifetime.end.p0(i64 8, ptr %20) #10
  call void @llvm.lifetime.end.p0(i64 64, ptr %19) #10
  call void @llvm.lifetime.end.p0(i64 64, ptr %18) #10
  call void @llvm.lifetime.end.p0(i64 768, ptr %17) #10
  call void @llvm.lifetime.end.p0(i64 768, ptr %16) #10
  ret void

260:                                              ; preds = %253
  unreachable
}

; Function Attrs: alwaysinline nounwind
define internal <16 x float> @splat(float noundef %0) #4 {
  %2 = alloca float, align 4
  %3 = alloca <16 x float>, align 4
  store float %0, ptr %2, align 4, !tbaa !28
  %4 = load float, ptr %2, align 4, !tbaa !28
  %5 = insertelement <16 x float> poison, float %4, i32 0
  %6 = load float, ptr %2, align 4, !tbaa !28
  %7 = insertelement <16 x float> %5, float %6, i32 1
  %8 = load float, ptr %2, align 4, !tbaa !28
  %9 = insertelement <16 x float> %7, float %8, i32 2
  %10 = load float, ptr %2, align 4, !tbaa !28
  %11 = insertelement <16 x float> %9, float %10, i32 3
  %12 = load float, ptr %2, align 4, !tbaa !28
  %13 = insertelement <16 x float> %11, float %12, i32 4
  %14 = load float, ptr %2, align 4, !tbaa !28
  %15 = insertelement <16 x float> %13, float %14, i32 5
  %16 = load float, ptr %2, align 4, !tbaa !28
  %17 = insertelement <16 x float> %15, float %16, i32 6
  %18 = load float, ptr %2, align 4, !tbaa !28
  %19 = insertelement <16 x float> %17, float %18, i32 7
  %20 = load float, ptr %2, align 4, !tbaa !28
  %21 = insertelement <16 x float> %19, float %20, i32 8
  %22 = load float, ptr %2, align 4, !tbaa !28
  %23 = insertelement <16 x float> %21, float %22, i32 9
  %24 = load float, ptr %2, align 4, !tbaa !28
  %25 = insertelement <16 x float> %23, float %24, i32 10
  %26 = load float, ptr %2, align 4, !tbaa !28
  %27 = insertelement <16 x float> %25, float %26, i32 11
  %28 = load float, ptr %2, align 4, !tbaa !28
  %29 = insertelement <16 x float> %27, float %28, i32 12
  %30 = load float, ptr %2, align 4, !tbaa !28
  %31 = insertelement <16 x float> %29, float %30, i32 13
  %32 = load float, ptr %2, align 4, !tbaa !28
  %33 = insertelement <16 x float> %31, float %32, i32 14
  %34 = load float, ptr %2, align 4, !tbaa !28
  %35 = insertelement <16 x float> %33, float %34, i32 15
  store <16 x float> %35, ptr %3, align 4, !tbaa !74
  %36 = load <16 x float>, ptr %3, align 4, !tbaa !74
  ret <16 x float> %36
}

; Function Attrs: alwaysinline nounwind
define internal void @load_panel_row(ptr noundef %0, i64 noundef %1, i32 noundef %2, ptr noundef %3, ptr noundef %4) #4 {
  %6 = alloca ptr, align 8
  %7 = alloca i64, align 8
  %8 = alloca i32, align 4
  %9 = alloca ptr, align 8
  %10 = alloca ptr, align 8
  %11 = alloca <16 x i32>, align 4
  %12 = alloca ptr, align 8
  store ptr %0, ptr %6, align 8, !tbaa !4
  store i64 %1, ptr %7, align 8, !tbaa !24
  store i32 %2, ptr %8, align 4, !tbaa !8
  store ptr %3, ptr %9, align 8, !tbaa !4
  store ptr %4, ptr %10, align 8, !tbaa !4
  %13 = load i32, ptr %8, align 4, !tbaa !8
  %14 = icmp ne i32 %13, 0
  br i1 %14, label %15, label %29

15:                                               ; preds = %5
  call void @llvm.lifetime.start.p0(i64 64, ptr %11) #10
  %16 = load ptr, ptr %6, align 8, !tbaa !4
  %17 = load i64, ptr %7, align 8, !tbaa !24
  %18 = mul nsw i64 %17, 16
  %19 = getelementptr inbounds i32, ptr %16, i64 %18
  %20 = load <16 x i32>, ptr %19, align 4, !tbaa !74
  store <16 x i32> %20, ptr %11, align 4, !tbaa !74
  %21 = load <16 x i32>, ptr %11, align 4, !tbaa !74
  %22 = shl <16 x i32> %21, <i32 16, i32 16, i32 16, i32 16, i32 16, i32 16, i32 16, i32 16, i32 16, i32 16, i32 16, i32 16, i32 16, i32 16, i32 16, i32 16>
  %23 = bitcast <16 x i32> %22 to <16 x float>
  %24 = load ptr, ptr %9, align 8, !tbaa !4
  store <16 x float> %23, ptr %24, align 4, !tbaa !74
  %25 = load <16 x i32>, ptr %11, align 4, !tbaa !74
  %26 = and <16 x i32> %25, <i32 -65536, i32 -65536, i32 -65536, i32 -65536, i32 -65536, i32 -65536, i32 -65536, i32 -65536, i32 -65536, i32 -65536, i32 -65536, i32 -65536, i32 -65536, i32 -65536, i32 -65536, i32 -65536>
  %27 = bitcast <16 x i32> %26 to <16 x float>
  %28 = load ptr, ptr %10, align 8, !tbaa !4
  store <16 x float> %27, ptr %28, align 4, !tbaa !74
  call void @llvm.lifetime.end.p0(i64 64, ptr %11) #10
  br label %41

29:                                               ; preds = %5
  call void @llvm.lifetime.start.p0(i64 8, ptr %12) #10
  %30 = load ptr, ptr %6, align 8, !tbaa !4
  %31 = load i64, ptr %7, align 8, !tbaa !24
  %32 = mul nsw i64 %31, 32
  %33 = getelementptr inbounds float, ptr %30, i64 %32
  store ptr %33, ptr %12, align 8, !tbaa !4
  %34 = load ptr, ptr %12, align 8, !tbaa !4
  %35 = call <16 x float> @load(ptr noundef %34)
  %36 = load ptr, ptr %9, align 8, !tbaa !4
  store <16 x float> %35, ptr %36, align 4, !tbaa !74
  %37 = load ptr, ptr %12, align 8, !tbaa !4
  %38 = getelementptr inbounds float, ptr %37, i64 16
  %39 = call <16 x float> @load(ptr noundef %38)
  %40 = load ptr, ptr %10, align 8, !tbaa !4
  store <16 x float> %39, ptr %40, align 4, !tbaa !74
  call void @llvm.lifetime.end.p0(i64 8, ptr %12) #10
  br label %41

41:                                               ; preds = %29, %15
  ret void
}

; Function Attrs: nocallback nofree nosync nounwind willreturn memory(argmem: readwrite, inaccessiblemem: readwrite)
declare void @llvm.prefetch.p0(ptr nocapture readonly, i32 immarg, i32 immarg, i32 immarg) #7

; Function Attrs: alwaysinline nounwind
define internal <16 x float> @fma16(<16 x float> noundef %0, <16 x float> noundef %1, <16 x float> noundef %2) #4 {
  %4 = alloca <16 x float>, align 4
  %5 = alloca <16 x float>, align 4
  %6 = alloca <16 x float>, align 4
  store <16 x float> %0, ptr %4, align 4, !tbaa !74
  store <16 x float> %1, ptr %5, align 4, !tbaa !74
  store <16 x float> %2, ptr %6, align 4, !tbaa !74
  %7 = load <16 x float>, ptr %4, align 4, !tbaa !74
  %8 = load <16 x float>, ptr %5, align 4, !tbaa !74
  %9 = load <16 x float>, ptr %6, align 4, !tbaa !74
  %10 = call <16 x float> @llvm.fma.v16f32(<16 x float> %7, <16 x float> %8, <16 x float> %9)
  ret <16 x float> %10
}

; Function Attrs: alwaysinline nounwind
define internal <16 x float> @exp16(<16 x float> noundef %0) #4 {
  %2 = alloca <16 x float>, align 4
  %3 = alloca <16 x float>, align 4
  %4 = alloca <16 x float>, align 4
  %5 = alloca <16 x float>, align 4
  %6 = alloca <16 x i32>, align 4
  store <16 x float> %0, ptr %2, align 4, !tbaa !74
  %7 = load <16 x float>, ptr %2, align 4, !tbaa !74
  %8 = call <16 x float> @splat(float noundef 8.800000e+01)
  %9 = call <16 x float> @llvm.minnum.v16f32(<16 x float> %7, <16 x float> %8)
  %10 = call <16 x float> @splat(float noundef -8.700000e+01)
  %11 = call <16 x float> @llvm.maxnum.v16f32(<16 x float> %9, <16 x float> %10)
  store <16 x float> %11, ptr %2, align 4, !tbaa !74
  call void @llvm.lifetime.start.p0(i64 64, ptr %3) #10
  %12 = load <16 x float>, ptr %2, align 4, !tbaa !74
  %13 = call <16 x float> @splat(float noundef 0x3FF7154760000000)
  %14 = fmul <16 x float> %12, %13
  %15 = call <16 x float> @llvm.roundeven.v16f32(<16 x float> %14)
  store <16 x float> %15, ptr %3, align 4, !tbaa !74
  call void @llvm.lifetime.start.p0(i64 64, ptr %4) #10
  %16 = load <16 x float>, ptr %3, align 4, !tbaa !74
  %17 = call <16 x float> @splat(float noundef 0xBFE6300000000000)
  %18 = load <16 x float>, ptr %2, align 4, !tbaa !74
  %19 = call <16 x float> @fma16(<16 x float> noundef %16, <16 x float> noundef %17, <16 x float> noundef %18)
  store <16 x float> %19, ptr %4, align 4, !tbaa !74
  %20 = load <16 x float>, ptr %3, align 4, !tbaa !74
  %21 = call <16 x float> @splat(float noundef 0x3F2BD01060000000)
  %22 = load <16 x float>, ptr %4, align 4, !tbaa !74
  %23 = call <16 x float> @fma16(<16 x float> noundef %20, <16 x float> noundef %21, <16 x float> noundef %22)
  store <16 x float> %23, ptr %4, align 4, !tbaa !74
  call void @llvm.lifetime.start.p0(i64 64, ptr %5) #10
  %24 = call <16 x float> @splat(float noundef 0x3F2A0D2CE0000000)
  store <16 x float> %24, ptr %5, align 4, !tbaa !74
  %25 = load <16 x float>, ptr %5, align 4, !tbaa !74
  %26 = load <16 x float>, ptr %4, align 4, !tbaa !74
  %27 = call <16 x float> @splat(float noundef 0x3F56E879C0000000)
  %28 = call <16 x float> @fma16(<16 x float> noundef %25, <16 x float> noundef %26, <16 x float> noundef %27)
  store <16 x float> %28, ptr %5, align 4, !tbaa !74
  %29 = load <16 x float>, ptr %5, align 4, !tbaa !74
  %30 = load <16 x float>, ptr %4, align 4, !tbaa !74
  %31 = call <16 x float> @splat(float noundef 0x3F81112100000000)
  %32 = call <16 x float> @fma16(<16 x float> noundef %29, <16 x float> noundef %30, <16 x float> noundef %31)
  store <16 x float> %32, ptr %5, align 4, !tbaa !74
  %33 = load <16 x float>, ptr %5, align 4, !tbaa !74
  %34 = load <16 x float>, ptr %4, align 4, !tbaa !74
  %35 = call <16 x float> @splat(float noundef 0x3FA5553820000000)
  %36 = call <16 x float> @fma16(<16 x float> noundef %33, <16 x float> noundef %34, <16 x float> noundef %35)
  store <16 x float> %36, ptr %5, align 4, !tbaa !74
  %37 = load <16 x float>, ptr %5, align 4, !tbaa !74
  %38 = load <16 x float>, ptr %4, align 4, !tbaa !74
  %39 = call <16 x float> @splat(float noundef 0x3FC5555540000000)
  %40 = call <16 x float> @fma16(<16 x float> noundef %37, <16 x float> noundef %38, <16 x float> noundef %39)
  store <16 x float> %40, ptr %5, align 4, !tbaa !74
  %41 = load <16 x float>, ptr %5, align 4, !tbaa !74
  %42 = load <16 x float>, ptr %4, align 4, !tbaa !74
  %43 = call <16 x float> @splat(float noundef 5.000000e-01)
  %44 = call <16 x float> @fma16(<16 x float> noundef %41, <16 x float> noundef %42, <16 x float> noundef %43)
  store <16 x float> %44, ptr %5, align 4, !tbaa !74
  %45 = load <16 x float>, ptr %5, align 4, !tbaa !74
  %46 = load <16 x float>, ptr %4, align 4, !tbaa !74
  %47 = load <16 x float>, ptr %4, align 4, !tbaa !74
  %48 = fmul <16 x float> %46, %47
  %49 = load <16 x float>, ptr %4, align 4, !tbaa !74
  %50 = call <16 x float> @splat(float noundef 1.000000e+00)
  %51 = fadd <16 x float> %49, %50
  %52 = call <16 x float> @fma16(<16 x float> noundef %45, <16 x float> noundef %48, <16 x float> noundef %51)
  store <16 x float> %52, ptr %5, align 4, !tbaa !74
  call void @llvm.lifetime.start.p0(i64 64, ptr %6) #10
  %53 = load <16 x float>, ptr %3, align 4, !tbaa !74
  %54 = fptosi <16 x float> %53 to <16 x i32>
  %55 = add <16 x i32> %54, <i32 127, i32 127, i32 127, i32 127, i32 127, i32 127, i32 127, i32 127, i32 127, i32 127, i32 127, i32 127, i32 127, i32 127, i32 127, i32 127>
  %56 = shl <16 x i32> %55, <i32 23, i32 23, i32 23, i32 23, i32 23, i32 23, i32 23, i32 23, i32 23, i32 23, i32 23, i32 23, i32 23, i32 23, i32 23, i32 23>
  store <16 x i32> %56, ptr %6, align 4, !tbaa !74
  %57 = load <16 x float>, ptr %5, align 4, !tbaa !74
  %58 = load <16 x i32>, ptr %6, align 4, !tbaa !74
  %59 = bitcast <16 x i32> %58 to <16 x float>
  %60 = fmul <16 x float> %57, %59
  call void @llvm.lifetime.end.p0(i64 64, ptr %6) #10
  call void @llvm.lifetime.end.p0(i64 64, ptr %5) #10
  call void @llvm.lifetime.end.p0(i64 64, ptr %4) #10
  call void @llvm.lifetime.end.p0(i64 64, ptr %3) #10
  ret <16 x float> %60
}

; Function Attrs: nocallback nofree nosync nounwind speculatable willreturn memory(none)
declare <16 x float> @llvm.fma.v16f32(<16 x float>, <16 x float>, <16 x float>) #8

; Function Attrs: nocallback nofree nosync nounwind speculatable willreturn memory(none)
declare <16 x float> @llvm.minnum.v16f32(<16 x float>, <16 x float>) #8

; Function Attrs: nocallback nofree nosync nounwind speculatable willreturn memory(none)
declare <16 x float> @llvm.maxnum.v16f32(<16 x float>, <16 x float>) #8

; Function Attrs: nocallback nofree nosync nounwind speculatable willreturn memory(none)
declare <16 x float> @llvm.roundeven.v16f32(<16 x float>) #8

; Function Attrs: alwaysinline nounwind
define internal float @sum16(<16 x float> noundef %0) #4 {
  %2 = alloca <16 x float>, align 4
  store <16 x float> %0, ptr %2, align 4, !tbaa !74
  %3 = load <16 x float>, ptr %2, align 4, !tbaa !74
  %4 = load <16 x float>, ptr %2, align 4, !tbaa !74
  %5 = shufflevector <16 x float> %3, <16 x float> %4, <16 x i32> <i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15, i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7>
  %6 = load <16 x float>, ptr %2, align 4, !tbaa !74
  %7 = fadd <16 x float> %6, %5
  store <16 x float> %7, ptr %2, align 4, !tbaa !74
  %8 = load <16 x float>, ptr %2, align 4, !tbaa !74
  %9 = load <16 x float>, ptr %2, align 4, !tbaa !74
  %10 = shufflevector <16 x float> %8, <16 x float> %9, <16 x i32> <i32 4, i32 5, i32 6, i32 7, i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7, i32 0, i32 1, i32 2, i32 3>
  %11 = load <16 x float>, ptr %2, align 4, !tbaa !74
  %12 = fadd <16 x float> %11, %10
  store <16 x float> %12, ptr %2, align 4, !tbaa !74
  %13 = load <16 x float>, ptr %2, align 4, !tbaa !74
  %14 = load <16 x float>, ptr %2, align 4, !tbaa !74
  %15 = shufflevector <16 x float> %13, <16 x float> %14, <16 x i32> <i32 2, i32 3, i32 0, i32 1, i32 2, i32 3, i32 0, i32 1, i32 2, i32 3, i32 0, i32 1, i32 2, i32 3, i32 0, i32 1>
  %16 = load <16 x float>, ptr %2, align 4, !tbaa !74
  %17 = fadd <16 x float> %16, %15
  store <16 x float> %17, ptr %2, align 4, !tbaa !74
  %18 = load <16 x float>, ptr %2, align 4, !tbaa !74
  %19 = extractelement <16 x float> %18, i32 0
  %20 = load <16 x float>, ptr %2, align 4, !tbaa !74
  %21 = extractelement <16 x float> %20, i32 1
  %22 = fadd float %19, %21
  ret float %22
}

; Function Attrs: nocallback nofree nosync nounwind speculatable willreturn memory(none)
declare float @llvm.sqrt.f32(float) #8

; Function Attrs: nounwind
define internal void @position_row(ptr noundef %0, ptr noundef %1, ptr noundef %2, i32 noundef %3) #0 {
  %5 = alloca ptr, align 8
  %6 = alloca ptr, align 8
  %7 = alloca ptr, align 8
  %8 = alloca i32, align 4
  %9 = alloca i32, align 4
  %10 = alloca i32, align 4
  %11 = alloca i32, align 4
  %12 = alloca i32, align 4
  %13 = alloca ptr, align 8
  %14 = alloca ptr, align 8
  %15 = alloca ptr, align 8
  %16 = alloca i32, align 4
  %17 = alloca ptr, align 8
  %18 = alloca ptr, align 8
  %19 = alloca ptr, align 8
  %20 = alloca ptr, align 8
  %21 = alloca i32, align 4
  store ptr %0, ptr %5, align 8, !tbaa !4
  store ptr %1, ptr %6, align 8, !tbaa !4
  store ptr %2, ptr %7, align 8, !tbaa !4
  store i32 %3, ptr %8, align 4, !tbaa !8
  call void @llvm.lifetime.start.p0(i64 4, ptr %9) #10
  %22 = load ptr, ptr %5, align 8, !tbaa !4
  %23 = getelementptr inbounds %struct.Model, ptr %22, i32 0, i32 4
  %24 = load i32, ptr %23, align 8, !tbaa !78
  store i32 %24, ptr %9, align 4, !tbaa !8
  call void @llvm.lifetime.start.p0(i64 4, ptr %10) #10
  %25 = load i32, ptr %9, align 4, !tbaa !8
  %26 = sdiv i32 %25, 2
  store i32 %26, ptr %10, align 4, !tbaa !8
  call void @llvm.lifetime.start.p0(i64 4, ptr %11) #10
  %27 = load ptr, ptr %5, align 8, !tbaa !4
  %28 = getelementptr inbounds %struct.Model, ptr %27, i32 0, i32 2
  %29 = load i32, ptr %28, align 8, !tbaa !77
  store i32 %29, ptr %11, align 4, !tbaa !8
  call void @llvm.lifetime.start.p0(i64 4, ptr %12) #10
  %30 = load ptr, ptr %5, align 8, !tbaa !4
  %31 = getelementptr inbounds %struct.Model, ptr %30, i32 0, i32 3
  %32 = load i32, ptr %31, align 4, !tbaa !84
  store i32 %32, ptr %12, align 4, !tbaa !8
  call void @llvm.lifetime.start.p0(i64 8, ptr %13) #10
  %33 = load ptr, ptr %7, align 8, !tbaa !4
  %34 = getelementptr inbounds %struct.Batch, ptr %33, i32 0, i32 12
  %35 = load ptr, ptr %34, align 8, !tbaa !79
  %36 = load i32, ptr %8, align 4, !tbaa !8
  %37 = sext i32 %36 to i64
  %38 = load ptr, ptr %5, align 8, !tbaa !4
  %39 = getelementptr inbounds %struct.Model, ptr %38, i32 0, i32 11
  %40 = load i32, ptr %39, align 4, !tbaa !82
  %41 = sext i32 %40 to i64
  %42 = mul nsw i64 %37, %41
  %43 = getelementptr inbounds float, ptr %35, i64 %42
  store ptr %43, ptr %13, align 8, !tbaa !4
  call void @llvm.lifetime.start.p0(i64 8, ptr %14) #10
  %44 = load ptr, ptr %5, align 8, !tbaa !4
  %45 = getelementptr inbounds %struct.Model, ptr %44, i32 0, i32 17
  %46 = load ptr, ptr %45, align 8, !tbaa !113
  %47 = load ptr, ptr %7, align 8, !tbaa !4
  %48 = getelementptr inbounds %struct.Batch, ptr %47, i32 0, i32 18
  %49 = load ptr, ptr %48, align 8, !tbaa !114
  %50 = load i32, ptr %8, align 4, !tbaa !8
  %51 = sext i32 %50 to i64
  %52 = getelementptr inbounds i32, ptr %49, i64 %51
  %53 = load i32, ptr %52, align 4, !tbaa !8
  %54 = sext i32 %53 to i64
  %55 = load i32, ptr %10, align 4, !tbaa !8
  %56 = sext i32 %55 to i64
  %57 = mul nsw i64 %54, %56
  %58 = getelementptr inbounds float, ptr %46, i64 %57
  store ptr %58, ptr %14, align 8, !tbaa !4
  call void @llvm.lifetime.start.p0(i64 8, ptr %15) #10
  %59 = load ptr, ptr %5, align 8, !tbaa !4
  %60 = getelementptr inbounds %struct.Model, ptr %59, i32 0, i32 18
  %61 = load ptr, ptr %60, align 8, !tbaa !115
  %62 = load ptr, ptr %7, align 8, !tbaa !4
  %63 = getelementptr inbounds %struct.Batch, ptr %62, i32 0, i32 18
  %64 = load ptr, ptr %63, align 8, !tbaa !114
  %65 = load i32, ptr %8, align 4, !tbaa !8
  %66 = sext i32 %65 to i64
  %67 = getelementptr inbounds i32, ptr %64, i64 %66
  %68 = load i32, ptr %67, align 4, !tbaa !8
  %69 = sext i32 %68 to i64
  %70 = load i32, ptr %10, align 4, !tbaa !8
  %71 = sext i32 %70 to i64
  %72 = mul nsw i64 %69, %71
  %73 = getelementptr inbounds float, ptr %61, i64 %72
  store ptr %73, ptr %15, align 8, !tbaa !4
  call void @llvm.lifetime.start.p0(i64 4, ptr %16) #10
  store i32 0, ptr %16, align 4, !tbaa !8
  br label %74

74:                                               ; preds = %116, %4
  %75 = load i32, ptr %16, align 4, !tbaa !8
  %76 = load i32, ptr %11, align 4, !tbaa !8
  %77 = load i32, ptr %12, align 4, !tbaa !8
  %78 = add nsw i32 %76, %77
  %79 = icmp slt i32 %75, %78
  br i1 %79, label %81, label %80

80:                                               ; preds = %74
  call void @llvm.lifetime.end.p0(i64 4, ptr %16) #10
  br label %119

81:                                               ; preds = %74
  call void @llvm.lifetime.start.p0(i64 8, ptr %17) #10
  %82 = load ptr, ptr %13, align 8, !tbaa !4
  %83 = load i32, ptr %16, align 4, !tbaa !8
  %84 = load i32, ptr %9, align 4, !tbaa !8
  %85 = mul nsw i32 %83, %84
  %86 = sext i32 %85 to i64
  %87 = getelementptr inbounds float, ptr %82, i64 %86
  store ptr %87, ptr %17, align 8, !tbaa !4
  call void @llvm.lifetime.start.p0(i64 8, ptr %18) #10
  %88 = load i32, ptr %16, align 4, !tbaa !8
  %89 = load i32, ptr %11, align 4, !tbaa !8
  %90 = icmp slt i32 %88, %89
  br i1 %90, label %91, label %95

91:                                               ; preds = %81
  %92 = load ptr, ptr %6, align 8, !tbaa !4
  %93 = getelementptr inbounds %struct.Layer, ptr %92, i32 0, i32 2
  %94 = load ptr, ptr %93, align 8, !tbaa !116
  br label %99

95:                                               ; preds = %81
  %96 = load ptr, ptr %6, align 8, !tbaa !4
  %97 = getelementptr inbounds %struct.Layer, ptr %96, i32 0, i32 3
  %98 = load ptr, ptr %97, align 8, !tbaa !117
  br label %99

99:                                               ; preds = %95, %91
  %100 = phi ptr [ %94, %91 ], [ %98, %95 ]
  store ptr %100, ptr %18, align 8, !tbaa !4
  %101 = load ptr, ptr %18, align 8, !tbaa !4
  %102 = icmp ne ptr %101, null
  br i1 %102, label %103, label %111

103:                                              ; preds = %99
  %104 = load ptr, ptr %17, align 8, !tbaa !4
  %105 = load ptr, ptr %18, align 8, !tbaa !4
  %106 = load ptr, ptr %5, align 8, !tbaa !4
  %107 = getelementptr inbounds %struct.Model, ptr %106, i32 0, i32 12
  %108 = load float, ptr %107, align 8, !tbaa !61
  %109 = load i32, ptr %9, align 4, !tbaa !8
  %110 = load ptr, ptr %17, align 8, !tbaa !4
  call void @rms_norm(ptr noundef %104, ptr noundef %105, float noundef %108, i32 noundef %109, ptr noundef %110)
  br label %111

111:                                              ; preds = %103, %99
  %112 = load ptr, ptr %17, align 8, !tbaa !4
  %113 = load ptr, ptr %14, align 8, !tbaa !4
  %114 = load ptr, ptr %15, align 8, !tbaa !4
  %115 = load i32, ptr %10, align 4, !tbaa !8
  call void @rope_head(ptr noundef %112, ptr noundef %113, ptr noundef %114, i32 noundef %115)
  call void @llvm.lifetime.end.p0(i64 8, ptr %18) #10
  call void @llvm.lifetime.end.p0(i64 8, ptr %17) #10
  br label %116

116:                                              ; preds = %111
  %117 = load i32, ptr %16, align 4, !tbaa !8
  %118 = add nsw i32 %117, 1
  store i32 %118, ptr %16, align 4, !tbaa !8
  br label %74, !llvm.loop !118

119:                                              ; preds = %80
  call void @llvm.lifetime.start.p0(i64 8, ptr %19) #10
  %120 = load ptr, ptr %13, align 8, !tbaa !4
  %121 = load i32, ptr %11, align 4, !tbaa !8
  %122 = load i32, ptr %9, align 4, !tbaa !8
  %123 = mul nsw i32 %121, %122
  %124 = sext i32 %123 to i64
  %125 = getelementptr inbounds float, ptr %120, i64 %124
  store ptr %125, ptr %19, align 8, !tbaa !4
  call void @llvm.lifetime.start.p0(i64 8, ptr %20) #10
  %126 = load ptr, ptr %19, align 8, !tbaa !4
  %127 = load i32, ptr %12, align 4, !tbaa !8
  %128 = load i32, ptr %9, align 4, !tbaa !8
  %129 = mul nsw i32 %127, %128
  %130 = sext i32 %129 to i64
  %131 = getelementptr inbounds float, ptr %126, i64 %130
  store ptr %131, ptr %20, align 8, !tbaa !4
  call void @llvm.lifetime.start.p0(i64 4, ptr %21) #10
  store i32 0, ptr %21, align 4, !tbaa !8
  br label %132

132:                                              ; preds = %160, %119
  %133 = load i32, ptr %21, align 4, !tbaa !8
  %134 = load i32, ptr %12, align 4, !tbaa !8
  %135 = icmp slt i32 %133, %134
  br i1 %135, label %137, label %136

136:                                              ; preds = %132
  call void @llvm.lifetime.end.p0(i64 4, ptr %21) #10
  br label %163

137:                                              ; preds = %132
  %138 = load ptr, ptr %5, align 8, !tbaa !4
  %139 = load ptr, ptr %6, align 8, !tbaa !4
  %140 = load ptr, ptr %7, align 8, !tbaa !4
  %141 = getelementptr inbounds %struct.Batch, ptr %140, i32 0, i32 6
  %142 = load ptr, ptr %141, align 8, !tbaa !119
  %143 = load i32, ptr %8, align 4, !tbaa !8
  %144 = sext i32 %143 to i64
  %145 = getelementptr inbounds i32, ptr %142, i64 %144
  %146 = load i32, ptr %145, align 4, !tbaa !8
  %147 = load i32, ptr %21, align 4, !tbaa !8
  %148 = load ptr, ptr %19, align 8, !tbaa !4
  %149 = load i32, ptr %21, align 4, !tbaa !8
  %150 = load i32, ptr %9, align 4, !tbaa !8
  %151 = mul nsw i32 %149, %150
  %152 = sext i32 %151 to i64
  %153 = getelementptr inbounds float, ptr %148, i64 %152
  %154 = load ptr, ptr %20, align 8, !tbaa !4
  %155 = load i32, ptr %21, align 4, !tbaa !8
  %156 = load i32, ptr %9, align 4, !tbaa !8
  %157 = mul nsw i32 %155, %156
  %158 = sext i32 %157 to i64
  %159 = getelementptr inbounds float, ptr %154, i64 %158
  call void @write_kv(ptr noundef %138, ptr noundef %139, i32 noundef %146, i32 noundef %147, ptr noundef %153, ptr noundef %159)
  br label %160

160:                                              ; preds = %137
  %161 = load i32, ptr %21, align 4, !tbaa !8
  %162 = add nsw i32 %161, 1
  store i32 %162, ptr %21, align 4, !tbaa !8
  br label %132, !llvm.loop !120

163:                                              ; preds = %136
  call void @llvm.lifetime.end.p0(i64 8, ptr %20) #10
  call void @llvm.lifetime.end.p0(i64 8, ptr %19) #10
  call void @llvm.lifetime.end.p0(i64 8, ptr %15) #10
  call void @llvm.lifetime.end.p0(i64 8, ptr %14) #10
  call void @llvm.lifetime.end.p0(i64 8, ptr %13) #10
  call void @llvm.lifetime.end.p0(i64 4, ptr %12) #10
  call void @llvm.lifetime.end.p0(i64 4, ptr %11) #10
  call void @llvm.lifetime.end.p0(i64 4, ptr %10) #10
  call void @llvm.lifetime.end.p0(i64 4, ptr %9) #10
  ret void
}

; Function Attrs: nounwind
define internal void @attend_row(ptr noundef %0, ptr noundef %1, ptr noundef %2, i32 noundef %3, i32 noundef %4) #0 {
  %6 = alloca ptr, align 8
  %7 = alloca ptr, align 8
  %8 = alloca ptr, align 8
  %9 = alloca i32, align 4
  %10 = alloca i32, align 4
  store ptr %0, ptr %6, align 8, !tbaa !4
  store ptr %1, ptr %7, align 8, !tbaa !4
  store ptr %2, ptr %8, align 8, !tbaa !4
  store i32 %3, ptr %9, align 4, !tbaa !8
  store i32 %4, ptr %10, align 4, !tbaa !8
  %11 = load ptr, ptr %8, align 8, !tbaa !4
  %12 = getelementptr inbounds %struct.Batch, ptr %11, i32 0, i32 22
  %13 = load ptr, ptr %12, align 8, !tbaa !121
  %14 = icmp ne ptr %13, null
  br i1 %14, label %15, label %30

15:                                               ; preds = %5
  %16 = load ptr, ptr %8, align 8, !tbaa !4
  %17 = getelementptr inbounds %struct.Batch, ptr %16, i32 0, i32 22
  %18 = load ptr, ptr %17, align 8, !tbaa !121
  %19 = load i32, ptr %9, align 4, !tbaa !8
  %20 = sext i32 %19 to i64
  %21 = getelementptr inbounds i32, ptr %18, i64 %20
  %22 = load i32, ptr %21, align 4, !tbaa !8
  %23 = icmp sge i32 %22, 0
  br i1 %23, label %24, label %30

24:                                               ; preds = %15
  %25 = load ptr, ptr %6, align 8, !tbaa !4
  %26 = load ptr, ptr %7, align 8, !tbaa !4
  %27 = load ptr, ptr %8, align 8, !tbaa !4
  %28 = load i32, ptr %9, align 4, !tbaa !8
  %29 = load i32, ptr %10, align 4, !tbaa !8
  call void @attend_node(ptr noundef %25, ptr noundef %26, ptr noundef %27, i32 noundef %28, i32 noundef %29)
  br label %36

30:                                               ; preds = %15, %5
  %31 = load ptr, ptr %6, align 8, !tbaa !4
  %32 = load ptr, ptr %7, align 8, !tbaa !4
  %33 = load ptr, ptr %8, align 8, !tbaa !4
  %34 = load i32, ptr %9, align 4, !tbaa !8
  %35 = load i32, ptr %10, align 4, !tbaa !8
  call void @attend_heads(ptr noundef %31, ptr noundef %32, ptr noundef %33, i32 noundef %34, i32 noundef %35, ptr noundef null)
  br label %36

36:                                               ; preds = %30, %24
  ret void
}

; Function Attrs: nounwind
define internal void @rope_head(ptr noundef %0, ptr noundef %1, ptr noundef %2, i32 noundef %3) #2 {
  %5 = alloca ptr, align 8
  %6 = alloca ptr, align 8
  %7 = alloca ptr, align 8
  %8 = alloca i32, align 4
  %9 = alloca i32, align 4
  %10 = alloca <16 x float>, align 4
  %11 = alloca <16 x float>, align 4
  %12 = alloca <16 x float>, align 4
  %13 = alloca <16 x float>, align 4
  store ptr %0, ptr %5, align 8, !tbaa !4
  store ptr %1, ptr %6, align 8, !tbaa !4
  store ptr %2, ptr %7, align 8, !tbaa !4
  store i32 %3, ptr %8, align 4, !tbaa !8
  call void @llvm.lifetime.start.p0(i64 4, ptr %9) #10
  store i32 0, ptr %9, align 4, !tbaa !8
  br label %14

14:                                               ; preds = %68, %4
  %15 = load i32, ptr %9, align 4, !tbaa !8
  %16 = load i32, ptr %8, align 4, !tbaa !8
  %17 = icmp slt i32 %15, %16
  br i1 %17, label %19, label %18

18:                                               ; preds = %14
  call void @llvm.lifetime.end.p0(i64 4, ptr %9) #10
  br label %71

19:                                               ; preds = %14
  call void @llvm.lifetime.start.p0(i64 64, ptr %10) #10
  %20 = load ptr, ptr %5, align 8, !tbaa !4
  %21 = load i32, ptr %9, align 4, !tbaa !8
  %22 = sext i32 %21 to i64
  %23 = getelementptr inbounds float, ptr %20, i64 %22
  %24 = call <16 x float> @load(ptr noundef %23)
  store <16 x float> %24, ptr %10, align 4, !tbaa !74
  call void @llvm.lifetime.start.p0(i64 64, ptr %11) #10
  %25 = load ptr, ptr %5, align 8, !tbaa !4
  %26 = load i32, ptr %8, align 4, !tbaa !8
  %27 = sext i32 %26 to i64
  %28 = getelementptr inbounds float, ptr %25, i64 %27
  %29 = load i32, ptr %9, align 4, !tbaa !8
  %30 = sext i32 %29 to i64
  %31 = getelementptr inbounds float, ptr %28, i64 %30
  %32 = call <16 x float> @load(ptr noundef %31)
  store <16 x float> %32, ptr %11, align 4, !tbaa !74
  call void @llvm.lifetime.start.p0(i64 64, ptr %12) #10
  %33 = load ptr, ptr %6, align 8, !tbaa !4
  %34 = load i32, ptr %9, align 4, !tbaa !8
  %35 = sext i32 %34 to i64
  %36 = getelementptr inbounds float, ptr %33, i64 %35
  %37 = call <16 x float> @load(ptr noundef %36)
  store <16 x float> %37, ptr %12, align 4, !tbaa !74
  call void @llvm.lifetime.start.p0(i64 64, ptr %13) #10
  %38 = load ptr, ptr %7, align 8, !tbaa !4
  %39 = load i32, ptr %9, align 4, !tbaa !8
  %40 = sext i32 %39 to i64
  %41 = getelementptr inbounds float, ptr %38, i64 %40
  %42 = call <16 x float> @load(ptr noundef %41)
  store <16 x float> %42, ptr %13, align 4, !tbaa !74
  %43 = load ptr, ptr %5, align 8, !tbaa !4
  %44 = load i32, ptr %9, align 4, !tbaa !8
  %45 = sext i32 %44 to i64
  %46 = getelementptr inbounds float, ptr %43, i64 %45
  %47 = load <16 x float>, ptr %10, align 4, !tbaa !74
  %48 = load <16 x float>, ptr %12, align 4, !tbaa !74
  %49 = fmul <16 x float> %47, %48
  %50 = load <16 x float>, ptr %11, align 4, !tbaa !74
  %51 = load <16 x float>, ptr %13, align 4, !tbaa !74
  %52 = fmul <16 x float> %50, %51
  %53 = fsub <16 x float> %49, %52
  call void @store(ptr noundef %46, <16 x float> noundef %53)
  %54 = load ptr, ptr %5, align 8, !tbaa !4
  %55 = load i32, ptr %8, align 4, !tbaa !8
  %56 = sext i32 %55 to i64
  %57 = getelementptr inbounds float, ptr %54, i64 %56
  %58 = load i32, ptr %9, align 4, !tbaa !8
  %59 = sext i32 %58 to i64
  %60 = getelementptr inbounds float, ptr %57, i64 %59
  %61 = load <16 x float>, ptr %11, align 4, !tbaa !74
  %62 = load <16 x float>, ptr %12, align 4, !tbaa !74
  %63 = fmul <16 x float> %61, %62
  %64 = load <16 x float>, ptr %10, align 4, !tbaa !74
  %65 = load <16 x float>, ptr %13, align 4, !tbaa !74
  %66 = fmul <16 x float> %64, %65
  %67 = fadd <16 x float> %63, %66
  call void @store(ptr noundef %60, <16 x float> noundef %67)
  call void @llvm.lifetime.end.p0(i64 64, ptr %13) #10
  call void @llvm.lifetime.end.p0(i64 64, ptr %12) #10
  call void @llvm.lifetime.end.p0(i64 64, ptr %11) #10
  call void @llvm.lifetime.end.p0(i64 64, ptr %10) #10
  br label %68

68:                                               ; preds = %19
  %69 = load i32, ptr %9, align 4, !tbaa !8
  %70 = add nsw i32 %69, 16
  store i32 %70, ptr %9, align 4, !tbaa !8
  br label %14, !llvm.loop !122

71:                                               ; preds = %18
  ret void
}

; Function Attrs: nounwind
define internal void @write_kv(ptr noundef %0, ptr noundef %1, i32 noundef %2, i32 noundef %3, ptr noundef %4, ptr noundef %5) #0 {
  %7 = alloca ptr, align 8
  %8 = alloca ptr, align 8
  %9 = alloca i32, align 4
  %10 = alloca i32, align 4
  %11 = alloca ptr, align 8
  %12 = alloca ptr, align 8
  %13 = alloca i32, align 4
  %14 = alloca %struct.Place, align 8
  %15 = alloca i32, align 4
  %16 = alloca i32, align 4
  %17 = alloca i32, align 4
  %18 = alloca ptr, align 8
  %19 = alloca ptr, align 8
  %20 = alloca i32, align 4
  %21 = alloca i32, align 4
  %22 = alloca i32, align 4
  store ptr %0, ptr %7, align 8, !tbaa !4
  store ptr %1, ptr %8, align 8, !tbaa !4
  store i32 %2, ptr %9, align 4, !tbaa !8
  store i32 %3, ptr %10, align 4, !tbaa !8
  store ptr %4, ptr %11, align 8, !tbaa !4
  store ptr %5, ptr %12, align 8, !tbaa !4
  call void @llvm.lifetime.start.p0(i64 4, ptr %13) #10
  %23 = load ptr, ptr %7, align 8, !tbaa !4
  %24 = getelementptr inbounds %struct.Model, ptr %23, i32 0, i32 4
  %25 = load i32, ptr %24, align 8, !tbaa !78
  store i32 %25, ptr %13, align 4, !tbaa !8
  call void @llvm.lifetime.start.p0(i64 16, ptr %14) #10
  %26 = load ptr, ptr %7, align 8, !tbaa !4
  %27 = load i32, ptr %9, align 4, !tbaa !8
  %28 = load i32, ptr %10, align 4, !tbaa !8
  %29 = call { i64, i64 } @place_of(ptr noundef %26, i32 noundef %27, i32 noundef %28)
  %30 = getelementptr inbounds { i64, i64 }, ptr %14, i32 0, i32 0
  %31 = extractvalue { i64, i64 } %29, 0
  store i64 %31, ptr %30, align 8
  %32 = getelementptr inbounds { i64, i64 }, ptr %14, i32 0, i32 1
  %33 = extractvalue { i64, i64 } %29, 1
  store i64 %33, ptr %32, align 8
  %34 = load ptr, ptr %7, align 8, !tbaa !4
  %35 = getelementptr inbounds %struct.Model, ptr %34, i32 0, i32 8
  %36 = load i32, ptr %35, align 8, !tbaa !93
  %37 = icmp ne i32 %36, 0
  br i1 %37, label %88, label %38

38:                                               ; preds = %6
  call void @llvm.lifetime.start.p0(i64 4, ptr %15) #10
  store i32 0, ptr %15, align 4, !tbaa !8
  br label %39

39:                                               ; preds = %60, %38
  %40 = load i32, ptr %15, align 4, !tbaa !8
  %41 = load i32, ptr %13, align 4, !tbaa !8
  %42 = icmp slt i32 %40, %41
  br i1 %42, label %44, label %43

43:                                               ; preds = %39
  call void @llvm.lifetime.end.p0(i64 4, ptr %15) #10
  br label %63

44:                                               ; preds = %39
  %45 = load ptr, ptr %11, align 8, !tbaa !4
  %46 = load i32, ptr %15, align 4, !tbaa !8
  %47 = sext i32 %46 to i64
  %48 = getelementptr inbounds float, ptr %45, i64 %47
  %49 = load float, ptr %48, align 4, !tbaa !28
  %50 = load ptr, ptr %8, align 8, !tbaa !4
  %51 = getelementptr inbounds %struct.Layer, ptr %50, i32 0, i32 9
  %52 = load ptr, ptr %51, align 8, !tbaa !88
  %53 = getelementptr inbounds %struct.Place, ptr %14, i32 0, i32 0
  %54 = load i64, ptr %53, align 8, !tbaa !94
  %55 = load i32, ptr %15, align 4, !tbaa !8
  %56 = mul nsw i32 %55, 32
  %57 = sext i32 %56 to i64
  %58 = add nsw i64 %54, %57
  %59 = getelementptr inbounds float, ptr %52, i64 %58
  store float %49, ptr %59, align 4, !tbaa !28
  br label %60

60:                                               ; preds = %44
  %61 = load i32, ptr %15, align 4, !tbaa !8
  %62 = add nsw i32 %61, 1
  store i32 %62, ptr %15, align 4, !tbaa !8
  br label %39, !llvm.loop !123

63:                                               ; preds = %43
  call void @llvm.lifetime.start.p0(i64 4, ptr %16) #10
  store i32 0, ptr %16, align 4, !tbaa !8
  br label %64

64:                                               ; preds = %84, %63
  %65 = load i32, ptr %16, align 4, !tbaa !8
  %66 = load i32, ptr %13, align 4, !tbaa !8
  %67 = icmp slt i32 %65, %66
  br i1 %67, label %69, label %68

68:                                               ; preds = %64
  call void @llvm.lifetime.end.p0(i64 4, ptr %16) #10
  br label %87

69:                                               ; preds = %64
  %70 = load ptr, ptr %12, align 8, !tbaa !4
  %71 = load i32, ptr %16, align 4, !tbaa !8
  %72 = sext i32 %71 to i64
  %73 = getelementptr inbounds float, ptr %70, i64 %72
  %74 = load float, ptr %73, align 4, !tbaa !28
  %75 = load ptr, ptr %8, align 8, !tbaa !4
  %76 = getelementptr inbounds %struct.Layer, ptr %75, i32 0, i32 10
  %77 = load ptr, ptr %76, align 8, !tbaa !89
  %78 = getelementptr inbounds %struct.Place, ptr %14, i32 0, i32 1
  %79 = load i64, ptr %78, align 8, !tbaa !97
  %80 = load i32, ptr %16, align 4, !tbaa !8
  %81 = sext i32 %80 to i64
  %82 = add nsw i64 %79, %81
  %83 = getelementptr inbounds float, ptr %77, i64 %82
  store float %74, ptr %83, align 4, !tbaa !28
  br label %84

84:                                               ; preds = %69
  %85 = load i32, ptr %16, align 4, !tbaa !8
  %86 = add nsw i32 %85, 1
  store i32 %86, ptr %16, align 4, !tbaa !8
  br label %64, !llvm.loop !124

87:                                               ; preds = %68
  store i32 1, ptr %17, align 4
  br label %159

88:                                               ; preds = %6
  call void @llvm.lifetime.start.p0(i64 8, ptr %18) #10
  %89 = load ptr, ptr %8, align 8, !tbaa !4
  %90 = getelementptr inbounds %struct.Layer, ptr %89, i32 0, i32 9
  %91 = load ptr, ptr %90, align 8, !tbaa !88
  %92 = getelementptr inbounds %struct.Place, ptr %14, i32 0, i32 0
  %93 = load i64, ptr %92, align 8, !tbaa !94
  %94 = getelementptr inbounds i16, ptr %91, i64 %93
  store ptr %94, ptr %18, align 8, !tbaa !4
  call void @llvm.lifetime.start.p0(i64 8, ptr %19) #10
  %95 = load ptr, ptr %8, align 8, !tbaa !4
  %96 = getelementptr inbounds %struct.Layer, ptr %95, i32 0, i32 10
  %97 = load ptr, ptr %96, align 8, !tbaa !89
  %98 = getelementptr inbounds %struct.Place, ptr %14, i32 0, i32 1
  %99 = load i64, ptr %98, align 8, !tbaa !97
  %100 = getelementptr inbounds i16, ptr %97, i64 %99
  store ptr %100, ptr %19, align 8, !tbaa !4
  call void @llvm.lifetime.start.p0(i64 4, ptr %20) #10
  store i32 0, ptr %20, align 4, !tbaa !8
  br label %101

101:                                              ; preds = %118, %88
  %102 = load i32, ptr %20, align 4, !tbaa !8
  %103 = load i32, ptr %13, align 4, !tbaa !8
  %104 = icmp slt i32 %102, %103
  br i1 %104, label %106, label %105

105:                                              ; preds = %101
  store i32 8, ptr %17, align 4
  call void @llvm.lifetime.end.p0(i64 4, ptr %20) #10
  br label %121

106:                                              ; preds = %101
  %107 = load ptr, ptr %11, align 8, !tbaa !4
  %108 = load i32, ptr %20, align 4, !tbaa !8
  %109 = sext i32 %108 to i64
  %110 = getelementptr inbounds float, ptr %107, i64 %109
  %111 = load float, ptr %110, align 4, !tbaa !28
  %112 = call zeroext i16 @to_bf16(float noundef %111)
  %113 = load ptr, ptr %18, align 8, !tbaa !4
  %114 = load i32, ptr %20, align 4, !tbaa !8
  %115 = mul nsw i32 %114, 32
  %116 = sext i32 %115 to i64
  %117 = getelementptr inbounds i16, ptr %113, i64 %116
  store i16 %112, ptr %117, align 2, !tbaa !30
  br label %118

118:                                              ; preds = %106
  %119 = load i32, ptr %20, align 4, !tbaa !8
  %120 = add nsw i32 %119, 1
  store i32 %120, ptr %20, align 4, !tbaa !8
  br label %101, !llvm.loop !125

121:                                              ; preds = %105
  call void @llvm.lifetime.start.p0(i64 4, ptr %21) #10
  store i32 0, ptr %21, align 4, !tbaa !8
  br label %122

122:                                              ; preds = %155, %121
  %123 = load i32, ptr %21, align 4, !tbaa !8
  %124 = load i32, ptr %13, align 4, !tbaa !8
  %125 = icmp slt i32 %123, %124
  br i1 %125, label %127, label %126

126:                                              ; preds = %122
  store i32 11, ptr %17, align 4
  call void @llvm.lifetime.end.p0(i64 4, ptr %21) #10
  br label %158

127:                                              ; preds = %122
  call void @llvm.lifetime.start.p0(i64 4, ptr %22) #10
  %128 = load i32, ptr %21, align 4, !tbaa !8
  %129 = srem i32 %128, 32
  store i32 %129, ptr %22, align 4, !tbaa !8
  %130 = load ptr, ptr %12, align 8, !tbaa !4
  %131 = load i32, ptr %21, align 4, !tbaa !8
  %132 = sext i32 %131 to i64
  %133 = getelementptr inbounds float, ptr %130, i64 %132
  %134 = load float, ptr %133, align 4, !tbaa !28
  %135 = call zeroext i16 @to_bf16(float noundef %134)
  %136 = load ptr, ptr %19, align 8, !tbaa !4
  %137 = load i32, ptr %21, align 4, !tbaa !8
  %138 = load i32, ptr %22, align 4, !tbaa !8
  %139 = sub nsw i32 %137, %138
  %140 = load i32, ptr %22, align 4, !tbaa !8
  %141 = icmp slt i32 %140, 16
  br i1 %141, label %142, label %145

142:                                              ; preds = %127
  %143 = load i32, ptr %22, align 4, !tbaa !8
  %144 = mul nsw i32 2, %143
  br label %150

145:                                              ; preds = %127
  %146 = load i32, ptr %22, align 4, !tbaa !8
  %147 = sub nsw i32 %146, 16
  %148 = mul nsw i32 2, %147
  %149 = add nsw i32 %148, 1
  br label %150

150:                                              ; preds = %145, %142
  %151 = phi i32 [ %144, %142 ], [ %149, %145 ]
  %152 = add nsw i32 %139, %151
  %153 = sext i32 %152 to i64
  %154 = getelementptr inbounds i16, ptr %136, i64 %153
  store i16 %135, ptr %154, align 2, !tbaa !30
  call void @llvm.lifetime.end.p0(i64 4, ptr %22) #10
  br label %155

155:                                              ; preds = %150
  %156 = load i32, ptr %21, align 4, !tbaa !8
  %157 = add nsw i32 %156, 1
  store i32 %157, ptr %21, align 4, !tbaa !8
  br label %122, !llvm.loop !126

158:                                              ; preds = %126
  call void @llvm.lifetime.end.p0(i64 8, ptr %19) #10
  call void @llvm.lifetime.end.p0(i64 8, ptr %18) #10
  store i32 0, ptr %17, align 4
  br label %159

159:                                              ; preds = %158, %87
  call void @llvm.lifetime.end.p0(i64 16, ptr %14) #10
  call void @llvm.lifetime.end.p0(i64 4, ptr %13) #10
  %160 = load i32, ptr %17, align 4
  switch i32 %160, label %162 [
    i32 0, label %161
    i32 1, label %161
  ]

161:                                              ; preds = %159, %159
  ret void

162:                                              ; preds = %159
  unreachable
}

; Function Attrs: alwaysinline nounwind
define internal zeroext i16 @to_bf16(float noundef %0) #3 {
  %2 = alloca float, align 4
  %3 = alloca i32, align 4
  store float %0, ptr %2, align 4, !tbaa !28
  call void @llvm.lifetime.start.p0(i64 4, ptr %3) #10
  call void @llvm.memcpy.p0.p0.i64(ptr align 4 %3, ptr align 4 %2, i64 4, i1 false)
  %4 = load i32, ptr %3, align 4, !tbaa !8
  %5 = add i32 %4, 32767
  %6 = load i32, ptr %3, align 4, !tbaa !8
  %7 = lshr i32 %6, 16
  %8 = and i32 %7, 1
  %9 = add i32 %5, %8
  %10 = lshr i32 %9, 16
  %11 = trunc i32 %10 to i16
  call void @llvm.lifetime.end.p0(i64 4, ptr %3) #10
  ret i16 %11
}

; Function Attrs: noinline nounwind
define internal void @attend_node(ptr noundef %0, ptr noundef %1, ptr noundef %2, i32 noundef %3, i32 noundef %4) #9 {
  %6 = alloca ptr, align 8
  %7 = alloca ptr, align 8
  %8 = alloca ptr, align 8
  %9 = alloca i32, align 4
  %10 = alloca i32, align 4
  %11 = alloca [32768 x i8], align 64
  %12 = alloca [32768 x i8], align 64
  %13 = alloca i32, align 4
  %14 = alloca %struct.Path, align 8
  store ptr %0, ptr %6, align 8, !tbaa !4
  store ptr %1, ptr %7, align 8, !tbaa !4
  store ptr %2, ptr %8, align 8, !tbaa !4
  store i32 %3, ptr %9, align 4, !tbaa !8
  store i32 %4, ptr %10, align 4, !tbaa !8
  call void @llvm.lifetime.start.p0(i64 32768, ptr %11) #10
  call void @llvm.lifetime.start.p0(i64 32768, ptr %12) #10
  call void @llvm.lifetime.start.p0(i64 4, ptr %13) #10
  %15 = load i32, ptr %9, align 4, !tbaa !8
  store i32 %15, ptr %13, align 4, !tbaa !8
  br label %16

16:                                               ; preds = %25, %5
  %17 = load ptr, ptr %8, align 8, !tbaa !4
  %18 = getelementptr inbounds %struct.Batch, ptr %17, i32 0, i32 22
  %19 = load ptr, ptr %18, align 8, !tbaa !121
  %20 = load i32, ptr %13, align 4, !tbaa !8
  %21 = sext i32 %20 to i64
  %22 = getelementptr inbounds i32, ptr %19, i64 %21
  %23 = load i32, ptr %22, align 4, !tbaa !8
  %24 = icmp sge i32 %23, 0
  br i1 %24, label %25, label %33

25:                                               ; preds = %16
  %26 = load ptr, ptr %8, align 8, !tbaa !4
  %27 = getelementptr inbounds %struct.Batch, ptr %26, i32 0, i32 22
  %28 = load ptr, ptr %27, align 8, !tbaa !121
  %29 = load i32, ptr %13, align 4, !tbaa !8
  %30 = sext i32 %29 to i64
  %31 = getelementptr inbounds i32, ptr %28, i64 %30
  %32 = load i32, ptr %31, align 4, !tbaa !8
  store i32 %32, ptr %13, align 4, !tbaa !8
  br label %16, !llvm.loop !127

33:                                               ; preds = %16
  call void @llvm.lifetime.start.p0(i64 32, ptr %14) #10
  %34 = getelementptr inbounds %struct.Path, ptr %14, i32 0, i32 0
  %35 = load ptr, ptr %8, align 8, !tbaa !4
  store ptr %35, ptr %34, align 8, !tbaa !128
  %36 = getelementptr inbounds %struct.Path, ptr %14, i32 0, i32 1
  %37 = load i32, ptr %9, align 4, !tbaa !8
  store i32 %37, ptr %36, align 8, !tbaa !130
  %38 = getelementptr inbounds %struct.Path, ptr %14, i32 0, i32 2
  %39 = load ptr, ptr %8, align 8, !tbaa !4
  %40 = getelementptr inbounds %struct.Batch, ptr %39, i32 0, i32 5
  %41 = load ptr, ptr %40, align 8, !tbaa !131
  %42 = load i32, ptr %13, align 4, !tbaa !8
  %43 = sext i32 %42 to i64
  %44 = getelementptr inbounds i32, ptr %41, i64 %43
  %45 = load i32, ptr %44, align 4, !tbaa !8
  %46 = add nsw i32 %45, 1
  %47 = sdiv i32 %46, 32
  store i32 %47, ptr %38, align 4, !tbaa !132
  %48 = getelementptr inbounds %struct.Path, ptr %14, i32 0, i32 3
  %49 = getelementptr inbounds [32768 x i8], ptr %11, i64 0, i64 0
  store ptr %49, ptr %48, align 8, !tbaa !133
  %50 = getelementptr inbounds %struct.Path, ptr %14, i32 0, i32 4
  %51 = getelementptr inbounds [32768 x i8], ptr %12, i64 0, i64 0
  store ptr %51, ptr %50, align 8, !tbaa !134
  %52 = load ptr, ptr %6, align 8, !tbaa !4
  %53 = load ptr, ptr %7, align 8, !tbaa !4
  %54 = load ptr, ptr %8, align 8, !tbaa !4
  %55 = load i32, ptr %9, align 4, !tbaa !8
  %56 = load i32, ptr %10, align 4, !tbaa !8
  call void @attend_heads(ptr noundef %52, ptr noundef %53, ptr noundef %54, i32 noundef %55, i32 noundef %56, ptr noundef %14)
  call void @llvm.lifetime.end.p0(i64 32, ptr %14) #10
  call void @llvm.lifetime.end.p0(i64 4, ptr %13) #10
  call void @llvm.lifetime.end.p0(i64 32768, ptr %12) #10
  call void @llvm.lifetime.end.p0(i64 32768, ptr %11) #10
  ret void
}

; Function Attrs: nounwind
define internal void @attend_heads(ptr noundef %0, ptr noundef %1, ptr noundef %2, i32 noundef %3, i32 noundef %4, ptr noundef %5) #0 {
  %7 = alloca ptr, align 8
  %8 = alloca ptr, align 8
  %9 = alloca ptr, align 8
  %10 = alloca i32, align 4
  %11 = alloca i32, align 4
  %12 = alloca ptr, align 8
  %13 = alloca i32, align 4
  %14 = alloca i32, align 4
  %15 = alloca i32, align 4
  %16 = alloca i32, align 4
  %17 = alloca ptr, align 8
  %18 = alloca i32, align 4
  %19 = alloca i32, align 4
  %20 = alloca ptr, align 8
  %21 = alloca ptr, align 8
  store ptr %0, ptr %7, align 8, !tbaa !4
  store ptr %1, ptr %8, align 8, !tbaa !4
  store ptr %2, ptr %9, align 8, !tbaa !4
  store i32 %3, ptr %10, align 4, !tbaa !8
  store i32 %4, ptr %11, align 4, !tbaa !8
  store ptr %5, ptr %12, align 8, !tbaa !4
  call void @llvm.lifetime.start.p0(i64 4, ptr %13) #10
  %22 = load ptr, ptr %7, align 8, !tbaa !4
  %23 = getelementptr inbounds %struct.Model, ptr %22, i32 0, i32 4
  %24 = load i32, ptr %23, align 8, !tbaa !78
  store i32 %24, ptr %13, align 4, !tbaa !8
  call void @llvm.lifetime.start.p0(i64 4, ptr %14) #10
  %25 = load ptr, ptr %7, align 8, !tbaa !4
  %26 = getelementptr inbounds %struct.Model, ptr %25, i32 0, i32 2
  %27 = load i32, ptr %26, align 8, !tbaa !77
  %28 = load ptr, ptr %7, align 8, !tbaa !4
  %29 = getelementptr inbounds %struct.Model, ptr %28, i32 0, i32 3
  %30 = load i32, ptr %29, align 4, !tbaa !84
  %31 = sdiv i32 %27, %30
  store i32 %31, ptr %14, align 4, !tbaa !8
  call void @llvm.lifetime.start.p0(i64 4, ptr %15) #10
  %32 = load ptr, ptr %9, align 8, !tbaa !4
  %33 = getelementptr inbounds %struct.Batch, ptr %32, i32 0, i32 5
  %34 = load ptr, ptr %33, align 8, !tbaa !131
  %35 = load i32, ptr %10, align 4, !tbaa !8
  %36 = sext i32 %35 to i64
  %37 = getelementptr inbounds i32, ptr %34, i64 %36
  %38 = load i32, ptr %37, align 4, !tbaa !8
  store i32 %38, ptr %15, align 4, !tbaa !8
  call void @llvm.lifetime.start.p0(i64 4, ptr %16) #10
  %39 = load ptr, ptr %7, align 8, !tbaa !4
  %40 = getelementptr inbounds %struct.Model, ptr %39, i32 0, i32 10
  %41 = load i32, ptr %40, align 8, !tbaa !135
  %42 = icmp ne i32 %41, 0
  br i1 %42, label %43, label %56

43:                                               ; preds = %6
  %44 = load i32, ptr %15, align 4, !tbaa !8
  %45 = load ptr, ptr %7, align 8, !tbaa !4
  %46 = getelementptr inbounds %struct.Model, ptr %45, i32 0, i32 10
  %47 = load i32, ptr %46, align 8, !tbaa !135
  %48 = icmp sge i32 %44, %47
  br i1 %48, label %49, label %56

49:                                               ; preds = %43
  %50 = load i32, ptr %15, align 4, !tbaa !8
  %51 = load ptr, ptr %7, align 8, !tbaa !4
  %52 = getelementptr inbounds %struct.Model, ptr %51, i32 0, i32 10
  %53 = load i32, ptr %52, align 8, !tbaa !135
  %54 = sub nsw i32 %50, %53
  %55 = add nsw i32 %54, 1
  br label %57

56:                                               ; preds = %43, %6
  br label %57

57:                                               ; preds = %56, %49
  %58 = phi i32 [ %55, %49 ], [ 0, %56 ]
  store i32 %58, ptr %16, align 4, !tbaa !8
  call void @llvm.lifetime.start.p0(i64 8, ptr %17) #10
  %59 = load ptr, ptr %9, align 8, !tbaa !4
  %60 = getelementptr inbounds %struct.Batch, ptr %59, i32 0, i32 8
  %61 = load ptr, ptr %60, align 8, !tbaa !136
  %62 = load ptr, ptr %9, align 8, !tbaa !4
  %63 = getelementptr inbounds %struct.Batch, ptr %62, i32 0, i32 7
  %64 = load ptr, ptr %63, align 8, !tbaa !137
  %65 = load i32, ptr %10, align 4, !tbaa !8
  %66 = sext i32 %65 to i64
  %67 = getelementptr inbounds i32, ptr %64, i64 %66
  %68 = load i32, ptr %67, align 4, !tbaa !8
  %69 = sext i32 %68 to i64
  %70 = load ptr, ptr %9, align 8, !tbaa !4
  %71 = getelementptr inbounds %struct.Batch, ptr %70, i32 0, i32 2
  %72 = load i32, ptr %71, align 8, !tbaa !138
  %73 = sext i32 %72 to i64
  %74 = mul nsw i64 %69, %73
  %75 = getelementptr inbounds i32, ptr %61, i64 %74
  store ptr %75, ptr %17, align 8, !tbaa !4
  call void @llvm.lifetime.start.p0(i64 4, ptr %18) #10
  %76 = load i32, ptr %11, align 4, !tbaa !8
  %77 = load i32, ptr %14, align 4, !tbaa !8
  %78 = mul nsw i32 %76, %77
  store i32 %78, ptr %18, align 4, !tbaa !8
  call void @llvm.lifetime.start.p0(i64 4, ptr %19) #10
  %79 = load i32, ptr %14, align 4, !tbaa !8
  store i32 %79, ptr %19, align 4, !tbaa !8
  br label %80

80:                                               ; preds = %161, %57
  %81 = load i32, ptr %19, align 4, !tbaa !8
  %82 = icmp sgt i32 %81, 0
  br i1 %82, label %84, label %83

83:                                               ; preds = %80
  call void @llvm.lifetime.end.p0(i64 4, ptr %19) #10
  call void @llvm.lifetime.end.p0(i64 4, ptr %18) #10
  br label %166

84:                                               ; preds = %80
  call void @llvm.lifetime.start.p0(i64 8, ptr %20) #10
  %85 = load ptr, ptr %9, align 8, !tbaa !4
  %86 = getelementptr inbounds %struct.Batch, ptr %85, i32 0, i32 12
  %87 = load ptr, ptr %86, align 8, !tbaa !79
  %88 = load i32, ptr %10, align 4, !tbaa !8
  %89 = sext i32 %88 to i64
  %90 = load ptr, ptr %7, align 8, !tbaa !4
  %91 = getelementptr inbounds %struct.Model, ptr %90, i32 0, i32 11
  %92 = load i32, ptr %91, align 4, !tbaa !82
  %93 = sext i32 %92 to i64
  %94 = mul nsw i64 %89, %93
  %95 = getelementptr inbounds float, ptr %87, i64 %94
  %96 = load i32, ptr %18, align 4, !tbaa !8
  %97 = load i32, ptr %13, align 4, !tbaa !8
  %98 = mul nsw i32 %96, %97
  %99 = sext i32 %98 to i64
  %100 = getelementptr inbounds float, ptr %95, i64 %99
  store ptr %100, ptr %20, align 8, !tbaa !4
  call void @llvm.lifetime.start.p0(i64 8, ptr %21) #10
  %101 = load ptr, ptr %9, align 8, !tbaa !4
  %102 = getelementptr inbounds %struct.Batch, ptr %101, i32 0, i32 13
  %103 = load ptr, ptr %102, align 8, !tbaa !86
  %104 = load i32, ptr %10, align 4, !tbaa !8
  %105 = sext i32 %104 to i64
  %106 = load ptr, ptr %7, align 8, !tbaa !4
  %107 = getelementptr inbounds %struct.Model, ptr %106, i32 0, i32 2
  %108 = load i32, ptr %107, align 8, !tbaa !77
  %109 = sext i32 %108 to i64
  %110 = mul nsw i64 %105, %109
  %111 = load i32, ptr %18, align 4, !tbaa !8
  %112 = sext i32 %111 to i64
  %113 = add nsw i64 %110, %112
  %114 = load i32, ptr %13, align 4, !tbaa !8
  %115 = sext i32 %114 to i64
  %116 = mul nsw i64 %113, %115
  %117 = getelementptr inbounds float, ptr %103, i64 %116
  store ptr %117, ptr %21, align 8, !tbaa !4
  %118 = load i32, ptr %19, align 4, !tbaa !8
  %119 = call i32 @min32(i32 noundef %118, i32 noundef 4)
  switch i32 %119, label %150 [
    i32 1, label %120
    i32 2, label %130
    i32 3, label %140
  ]

120:                                              ; preds = %84
  %121 = load ptr, ptr %7, align 8, !tbaa !4
  %122 = load ptr, ptr %8, align 8, !tbaa !4
  %123 = load ptr, ptr %20, align 8, !tbaa !4
  %124 = load ptr, ptr %17, align 8, !tbaa !4
  %125 = load i32, ptr %11, align 4, !tbaa !8
  %126 = load i32, ptr %16, align 4, !tbaa !8
  %127 = load i32, ptr %15, align 4, !tbaa !8
  %128 = load ptr, ptr %21, align 8, !tbaa !4
  %129 = load ptr, ptr %12, align 8, !tbaa !4
  call void @attend1(ptr noundef %121, ptr noundef %122, ptr noundef %123, ptr noundef %124, i32 noundef %125, i32 noundef %126, i32 noundef %127, ptr noundef %128, ptr noundef %129)
  br label %160

130:                                              ; preds = %84
  %131 = load ptr, ptr %7, align 8, !tbaa !4
  %132 = load ptr, ptr %8, align 8, !tbaa !4
  %133 = load ptr, ptr %20, align 8, !tbaa !4
  %134 = load ptr, ptr %17, align 8, !tbaa !4
  %135 = load i32, ptr %11, align 4, !tbaa !8
  %136 = load i32, ptr %16, align 4, !tbaa !8
  %137 = load i32, ptr %15, align 4, !tbaa !8
  %138 = load ptr, ptr %21, align 8, !tbaa !4
  %139 = load ptr, ptr %12, align 8, !tbaa !4
  call void @attend2(ptr noundef %131, ptr noundef %132, ptr noundef %133, ptr noundef %134, i32 noundef %135, i32 noundef %136, i32 noundef %137, ptr noundef %138, ptr noundef %139)
  br label %160

140:                                              ; preds = %84
  %141 = load ptr, ptr %7, align 8, !tbaa !4
  %142 = load ptr, ptr %8, align 8, !tbaa !4
  %143 = load ptr, ptr %20, align 8, !tbaa !4
  %144 = load ptr, ptr %17, align 8, !tbaa !4
  %145 = load i32, ptr %11, align 4, !tbaa !8
  %146 = load i32, ptr %16, align 4, !tbaa !8
  %147 = load i32, ptr %15, align 4, !tbaa !8
  %148 = load ptr, ptr %21, align 8, !tbaa !4
  %149 = load ptr, ptr %12, align 8, !tbaa !4
  call void @attend3(ptr noundef %141, ptr noundef %142, ptr noundef %143, ptr noundef %144, i32 noundef %145, i32 noundef %146, i32 noundef %147, ptr noundef %148, ptr noundef %149)
  br label %160

150:                                              ; preds = %84
  %151 = load ptr, ptr %7, align 8, !tbaa !4
  %152 = load ptr, ptr %8, align 8, !tbaa !4
  %153 = load ptr, ptr %20, align 8, !tbaa !4
  %154 = load ptr, ptr %17, align 8, !tbaa !4
  %155 = load i32, ptr %11, align 4, !tbaa !8
  %156 = load i32, ptr %16, align 4, !tbaa !8
  %157 = load i32, ptr %15, align 4, !tbaa !8
  %158 = load ptr, ptr %21, align 8, !tbaa !4
  %159 = load ptr, ptr %12, align 8, !tbaa !4
  call void @attend4(ptr noundef %151, ptr noundef %152, ptr noundef %153, ptr noundef %154, i32 noundef %155, i32 noundef %156, i32 noundef %157, ptr noundef %158, ptr noundef %159)
  br label %160

160:                                              ; preds = %150, %140, %130, %120
  call void @llvm.lifetime.end.p0(i64 8, ptr %21) #10
  call void @llvm.lifetime.end.p0(i64 8, ptr %20) #10
  br label %161

161:                                              ; preds = %160
  %162 = load i32, ptr %18, align 4, !tbaa !8
  %163 = add nsw i32 %162, 4
  store i32 %163, ptr %18, align 4, !tbaa !8
  %164 = load i32, ptr %19, align 4, !tbaa !8
  %165 = sub nsw i32 %164, 4
  store i32 %165, ptr %19, align 4, !tbaa !8
  br label %80, !llvm.loop !139

166:                                              ; preds = %83
  call void @llvm.lifetime.end.p0(i64 8, ptr %17) #10
  call void @llvm.lifetime.end.p0(i64 4, ptr %16) #10
  call void @llvm.lifetime.end.p0(i64 4, ptr %15) #10
  call void @llvm.lifetime.end.p0(i64 4, ptr %14) #10
  call void @llvm.lifetime.end.p0(i64 4, ptr %13) #10
  ret void
}

; Function Attrs: nounwind
define internal void @attend1(ptr noundef %0, ptr noundef %1, ptr noundef %2, ptr noundef %3, i32 noundef %4, i32 noundef %5, i32 noundef %6, ptr noundef %7, ptr noundef %8) #0 {
  %10 = alloca ptr, align 8
  %11 = alloca ptr, align 8
  %12 = alloca ptr, align 8
  %13 = alloca ptr, align 8
  %14 = alloca i32, align 4
  %15 = alloca i32, align 4
  %16 = alloca i32, align 4
  %17 = alloca ptr, align 8
  %18 = alloca ptr, align 8
  store ptr %0, ptr %10, align 8, !tbaa !4
  store ptr %1, ptr %11, align 8, !tbaa !4
  store ptr %2, ptr %12, align 8, !tbaa !4
  store ptr %3, ptr %13, align 8, !tbaa !4
  store i32 %4, ptr %14, align 4, !tbaa !8
  store i32 %5, ptr %15, align 4, !tbaa !8
  store i32 %6, ptr %16, align 4, !tbaa !8
  store ptr %7, ptr %17, align 8, !tbaa !4
  store ptr %8, ptr %18, align 8, !tbaa !4
  %19 = load ptr, ptr %10, align 8, !tbaa !4
  %20 = load ptr, ptr %11, align 8, !tbaa !4
  %21 = load ptr, ptr %12, align 8, !tbaa !4
  %22 = load ptr, ptr %13, align 8, !tbaa !4
  %23 = load i32, ptr %14, align 4, !tbaa !8
  %24 = load i32, ptr %15, align 4, !tbaa !8
  %25 = load i32, ptr %16, align 4, !tbaa !8
  %26 = load ptr, ptr %17, align 8, !tbaa !4
  %27 = load ptr, ptr %18, align 8, !tbaa !4
  call void @attend_group(ptr noundef %19, ptr noundef %20, ptr noundef %21, ptr noundef %22, i32 noundef %23, i32 noundef %24, i32 noundef %25, ptr noundef %26, ptr noundef %27, i32 noundef 1)
  ret void
}

; Function Attrs: nounwind
define internal void @attend2(ptr noundef %0, ptr noundef %1, ptr noundef %2, ptr noundef %3, i32 noundef %4, i32 noundef %5, i32 noundef %6, ptr noundef %7, ptr noundef %8) #0 {
  %10 = alloca ptr, align 8
  %11 = alloca ptr, align 8
  %12 = alloca ptr, align 8
  %13 = alloca ptr, align 8
  %14 = alloca i32, align 4
  %15 = alloca i32, align 4
  %16 = alloca i32, align 4
  %17 = alloca ptr, align 8
  %18 = alloca ptr, align 8
  store ptr %0, ptr %10, align 8, !tbaa !4
  store ptr %1, ptr %11, align 8, !tbaa !4
  store ptr %2, ptr %12, align 8, !tbaa !4
  store ptr %3, ptr %13, align 8, !tbaa !4
  store i32 %4, ptr %14, align 4, !tbaa !8
  store i32 %5, ptr %15, align 4, !tbaa !8
  store i32 %6, ptr %16, align 4, !tbaa !8
  store ptr %7, ptr %17, align 8, !tbaa !4
  store ptr %8, ptr %18, align 8, !tbaa !4
  %19 = load ptr, ptr %10, align 8, !tbaa !4
  %20 = load ptr, ptr %11, align 8, !tbaa !4
  %21 = load ptr, ptr %12, align 8, !tbaa !4
  %22 = load ptr, ptr %13, align 8, !tbaa !4
  %23 = load i32, ptr %14, align 4, !tbaa !8
  %24 = load i32, ptr %15, align 4, !tbaa !8
  %25 = load i32, ptr %16, align 4, !tbaa !8
  %26 = load ptr, ptr %17, align 8, !tbaa !4
  %27 = load ptr, ptr %18, align 8, !tbaa !4
  call void @attend_group(ptr noundef %19, ptr noundef %20, ptr noundef %21, ptr noundef %22, i32 noundef %23, i32 noundef %24, i32 noundef %25, ptr noundef %26, ptr noundef %27, i32 noundef 2)
  ret void
}

; Function Attrs: nounwind
define internal void @attend3(ptr noundef %0, ptr noundef %1, ptr noundef %2, ptr noundef %3, i32 noundef %4, i32 noundef %5, i32 noundef %6, ptr noundef %7, ptr noundef %8) #0 {
  %10 = alloca ptr, align 8
  %11 = alloca ptr, align 8
  %12 = alloca ptr, align 8
  %13 = alloca ptr, align 8
  %14 = alloca i32, align 4
  %15 = alloca i32, align 4
  %16 = alloca i32, align 4
  %17 = alloca ptr, align 8
  %18 = alloca ptr, align 8
  store ptr %0, ptr %10, align 8, !tbaa !4
  store ptr %1, ptr %11, align 8, !tbaa !4
  store ptr %2, ptr %12, align 8, !tbaa !4
  store ptr %3, ptr %13, align 8, !tbaa !4
  store i32 %4, ptr %14, align 4, !tbaa !8
  store i32 %5, ptr %15, align 4, !tbaa !8
  store i32 %6, ptr %16, align 4, !tbaa !8
  store ptr %7, ptr %17, align 8, !tbaa !4
  store ptr %8, ptr %18, align 8, !tbaa !4
  %19 = load ptr, ptr %10, align 8, !tbaa !4
  %20 = load ptr, ptr %11, align 8, !tbaa !4
  %21 = load ptr, ptr %12, align 8, !tbaa !4
  %22 = load ptr, ptr %13, align 8, !tbaa !4
  %23 = load i32, ptr %14, align 4, !tbaa !8
  %24 = load i32, ptr %15, align 4, !tbaa !8
  %25 = load i32, ptr %16, align 4, !tbaa !8
  %26 = load ptr, ptr %17, align 8, !tbaa !4
  %27 = load ptr, ptr %18, align 8, !tbaa !4
  call void @attend_group(ptr noundef %19, ptr noundef %20, ptr noundef %21, ptr noundef %22, i32 noundef %23, i32 noundef %24, i32 noundef %25, ptr noundef %26, ptr noundef %27, i32 noundef 3)
  ret void
}

; Function Attrs: nounwind
define internal void @attend4(ptr noundef %0, ptr noundef %1, ptr noundef %2, ptr noundef %3, i32 noundef %4, i32 noundef %5, i32 noundef %6, ptr noundef %7, ptr noundef %8) #0 {
  %10 = alloca ptr, align 8
  %11 = alloca ptr, align 8
  %12 = alloca ptr, align 8
  %13 = alloca ptr, align 8
  %14 = alloca i32, align 4
  %15 = alloca i32, align 4
  %16 = alloca i32, align 4
  %17 = alloca ptr, align 8
  %18 = alloca ptr, align 8
  store ptr %0, ptr %10, align 8, !tbaa !4
  store ptr %1, ptr %11, align 8, !tbaa !4
  store ptr %2, ptr %12, align 8, !tbaa !4
  store ptr %3, ptr %13, align 8, !tbaa !4
  store i32 %4, ptr %14, align 4, !tbaa !8
  store i32 %5, ptr %15, align 4, !tbaa !8
  store i32 %6, ptr %16, align 4, !tbaa !8
  store ptr %7, ptr %17, align 8, !tbaa !4
  store ptr %8, ptr %18, align 8, !tbaa !4
  %19 = load ptr, ptr %10, align 8, !tbaa !4
  %20 = load ptr, ptr %11, align 8, !tbaa !4
  %21 = load ptr, ptr %12, align 8, !tbaa !4
  %22 = load ptr, ptr %13, align 8, !tbaa !4
  %23 = load i32, ptr %14, align 4, !tbaa !8
  %24 = load i32, ptr %15, align 4, !tbaa !8
  %25 = load i32, ptr %16, align 4, !tbaa !8
  %26 = load ptr, ptr %17, align 8, !tbaa !4
  %27 = load ptr, ptr %18, align 8, !tbaa !4
  call void @attend_group(ptr noundef %19, ptr noundef %20, ptr noundef %21, ptr noundef %22, i32 noundef %23, i32 noundef %24, i32 noundef %25, ptr noundef %26, ptr noundef %27, i32 noundef 4)
  ret void
}

; Function Attrs: alwaysinline nounwind
define internal void @attend_group(ptr noundef %0, ptr noundef %1, ptr noundef %2, ptr noundef %3, i32 noundef %4, i32 noundef %5, i32 noundef %6, ptr noundef %7, ptr noundef %8, i32 noundef %9) #4 {
  %11 = alloca ptr, align 8
  %12 = alloca ptr, align 8
  %13 = alloca ptr, align 8
  %14 = alloca ptr, align 8
  %15 = alloca i32, align 4
  %16 = alloca i32, align 4
  %17 = alloca i32, align 4
  %18 = alloca ptr, align 8
  %19 = alloca ptr, align 8
  %20 = alloca i32, align 4
  %21 = alloca i32, align 4
  %22 = alloca i32, align 4
  %23 = alloca [4 x float], align 16
  %24 = alloca [4 x float], align 16
  %25 = alloca [128 x float], align 16
  %26 = alloca [4 x <16 x float>], align 16
  %27 = alloca [4 x <16 x float>], align 16
  %28 = alloca [4 x <16 x float>], align 16
  %29 = alloca i32, align 4
  %30 = alloca i32, align 4
  %31 = alloca i32, align 4
  %32 = alloca i32, align 4
  %33 = alloca i32, align 4
  %34 = alloca i32, align 4
  %35 = alloca i32, align 4
  %36 = alloca i64, align 8
  %37 = alloca i64, align 8
  %38 = alloca ptr, align 8
  %39 = alloca ptr, align 8
  %40 = alloca ptr, align 8
  %41 = alloca ptr, align 8
  %42 = alloca i32, align 4
  %43 = alloca float, align 4
  %44 = alloca <16 x float>, align 4
  %45 = alloca <16 x float>, align 4
  %46 = alloca <16 x i32>, align 4
  %47 = alloca i32, align 4
  %48 = alloca <16 x float>, align 4
  %49 = alloca i32, align 4
  store ptr %0, ptr %11, align 8, !tbaa !4
  store ptr %1, ptr %12, align 8, !tbaa !4
  store ptr %2, ptr %13, align 8, !tbaa !4
  store ptr %3, ptr %14, align 8, !tbaa !4
  store i32 %4, ptr %15, align 4, !tbaa !8
  store i32 %5, ptr %16, align 4, !tbaa !8
  store i32 %6, ptr %17, align 4, !tbaa !8
  store ptr %7, ptr %18, align 8, !tbaa !4
  store ptr %8, ptr %19, align 8, !tbaa !4
  store i32 %9, ptr %20, align 4, !tbaa !8
  call void @llvm.lifetime.start.p0(i64 4, ptr %21) #10
  %50 = load ptr, ptr %11, align 8, !tbaa !4
  %51 = getelementptr inbounds %struct.Model, ptr %50, i32 0, i32 4
  %52 = load i32, ptr %51, align 8, !tbaa !78
  store i32 %52, ptr %21, align 4, !tbaa !8
  call void @llvm.lifetime.start.p0(i64 4, ptr %22) #10
  %53 = load ptr, ptr %11, align 8, !tbaa !4
  %54 = getelementptr inbounds %struct.Model, ptr %53, i32 0, i32 8
  %55 = load i32, ptr %54, align 8, !tbaa !93
  store i32 %55, ptr %22, align 4, !tbaa !8
  call void @llvm.lifetime.start.p0(i64 16, ptr %23) #10
  call void @llvm.lifetime.start.p0(i64 16, ptr %24) #10
  call void @llvm.lifetime.start.p0(i64 512, ptr %25) #10
  call void @llvm.lifetime.start.p0(i64 256, ptr %26) #10
  call void @llvm.lifetime.start.p0(i64 256, ptr %27) #10
  call void @llvm.lifetime.start.p0(i64 256, ptr %28) #10
  call void @llvm.lifetime.start.p0(i64 4, ptr %29) #10
  store i32 0, ptr %29, align 4, !tbaa !8
  br label %56

56:                                               ; preds = %69, %10
  %57 = load i32, ptr %29, align 4, !tbaa !8
  %58 = load i32, ptr %20, align 4, !tbaa !8
  %59 = icmp slt i32 %57, %58
  br i1 %59, label %61, label %60

60:                                               ; preds = %56
  call void @llvm.lifetime.end.p0(i64 4, ptr %29) #10
  br label %72

61:                                               ; preds = %56
  %62 = load i32, ptr %29, align 4, !tbaa !8
  %63 = sext i32 %62 to i64
  %64 = getelementptr inbounds [4 x float], ptr %23, i64 0, i64 %63
  store float 0xFFF0000000000000, ptr %64, align 4, !tbaa !28
  %65 = call <16 x float> @splat(float noundef 0.000000e+00)
  %66 = load i32, ptr %29, align 4, !tbaa !8
  %67 = sext i32 %66 to i64
  %68 = getelementptr inbounds [4 x <16 x float>], ptr %26, i64 0, i64 %67
  store <16 x float> %65, ptr %68, align 16, !tbaa !74
  br label %69

69:                                               ; preds = %61
  %70 = load i32, ptr %29, align 4, !tbaa !8
  %71 = add nsw i32 %70, 1
  store i32 %71, ptr %29, align 4, !tbaa !8
  br label %56, !llvm.loop !140

72:                                               ; preds = %60
  call void @llvm.lifetime.start.p0(i64 4, ptr %30) #10
  store i32 0, ptr %30, align 4, !tbaa !8
  br label %73

73:                                               ; preds = %86, %72
  %74 = load i32, ptr %30, align 4, !tbaa !8
  %75 = load i32, ptr %20, align 4, !tbaa !8
  %76 = load i32, ptr %21, align 4, !tbaa !8
  %77 = mul nsw i32 %75, %76
  %78 = icmp slt i32 %74, %77
  br i1 %78, label %80, label %79

79:                                               ; preds = %73
  call void @llvm.lifetime.end.p0(i64 4, ptr %30) #10
  br label %89

80:                                               ; preds = %73
  %81 = load ptr, ptr %18, align 8, !tbaa !4
  %82 = load i32, ptr %30, align 4, !tbaa !8
  %83 = sext i32 %82 to i64
  %84 = getelementptr inbounds float, ptr %81, i64 %83
  %85 = call <16 x float> @splat(float noundef 0.000000e+00)
  call void @store(ptr noundef %84, <16 x float> noundef %85)
  br label %86

86:                                               ; preds = %80
  %87 = load i32, ptr %30, align 4, !tbaa !8
  %88 = add nsw i32 %87, 16
  store i32 %88, ptr %30, align 4, !tbaa !8
  br label %73, !llvm.loop !141

89:                                               ; preds = %79
  call void @llvm.lifetime.start.p0(i64 4, ptr %31) #10
  %90 = load i32, ptr %16, align 4, !tbaa !8
  %91 = sdiv i32 %90, 32
  store i32 %91, ptr %31, align 4, !tbaa !8
  br label %92

92:                                               ; preds = %327, %89
  %93 = load i32, ptr %31, align 4, !tbaa !8
  %94 = load i32, ptr %17, align 4, !tbaa !8
  %95 = sdiv i32 %94, 32
  %96 = icmp sle i32 %93, %95
  br i1 %96, label %98, label %97

97:                                               ; preds = %92
  store i32 8, ptr %32, align 4
  call void @llvm.lifetime.end.p0(i64 4, ptr %31) #10
  br label %330

98:                                               ; preds = %92
  call void @llvm.lifetime.start.p0(i64 4, ptr %33) #10
  %99 = load i32, ptr %31, align 4, !tbaa !8
  %100 = mul nsw i32 %99, 32
  store i32 %100, ptr %33, align 4, !tbaa !8
  call void @llvm.lifetime.start.p0(i64 4, ptr %34) #10
  %101 = load i32, ptr %16, align 4, !tbaa !8
  %102 = load i32, ptr %33, align 4, !tbaa !8
  %103 = icmp sgt i32 %101, %102
  br i1 %103, label %104, label %108

104:                                              ; preds = %98
  %105 = load i32, ptr %16, align 4, !tbaa !8
  %106 = load i32, ptr %33, align 4, !tbaa !8
  %107 = sub nsw i32 %105, %106
  br label %109

108:                                              ; preds = %98
  br label %109

109:                                              ; preds = %108, %104
  %110 = phi i32 [ %107, %104 ], [ 0, %108 ]
  store i32 %110, ptr %34, align 4, !tbaa !8
  call void @llvm.lifetime.start.p0(i64 4, ptr %35) #10
  %111 = load i32, ptr %17, align 4, !tbaa !8
  %112 = load i32, ptr %33, align 4, !tbaa !8
  %113 = sub nsw i32 %111, %112
  %114 = call i32 @min32(i32 noundef 31, i32 noundef %113)
  store i32 %114, ptr %35, align 4, !tbaa !8
  call void @llvm.lifetime.start.p0(i64 8, ptr %36) #10
  %115 = load ptr, ptr %11, align 8, !tbaa !4
  %116 = load ptr, ptr %14, align 8, !tbaa !4
  %117 = load i32, ptr %15, align 4, !tbaa !8
  %118 = load i32, ptr %31, align 4, !tbaa !8
  %119 = call i64 @kv_tile(ptr noundef %115, ptr noundef %116, i32 noundef %117, i32 noundef %118)
  store i64 %119, ptr %36, align 8, !tbaa !24
  call void @llvm.lifetime.start.p0(i64 8, ptr %37) #10
  %120 = load ptr, ptr %11, align 8, !tbaa !4
  %121 = load ptr, ptr %14, align 8, !tbaa !4
  %122 = load i32, ptr %15, align 4, !tbaa !8
  %123 = load i32, ptr %31, align 4, !tbaa !8
  %124 = add nsw i32 %123, 1
  %125 = load i32, ptr %17, align 4, !tbaa !8
  %126 = sdiv i32 %125, 32
  %127 = call i32 @min32(i32 noundef %124, i32 noundef %126)
  %128 = call i64 @kv_tile(ptr noundef %120, ptr noundef %121, i32 noundef %122, i32 noundef %127)
  store i64 %128, ptr %37, align 8, !tbaa !24
  call void @llvm.lifetime.start.p0(i64 8, ptr %38) #10
  %129 = load ptr, ptr %12, align 8, !tbaa !4
  %130 = getelementptr inbounds %struct.Layer, ptr %129, i32 0, i32 9
  %131 = load ptr, ptr %130, align 8, !tbaa !88
  %132 = load i64, ptr %36, align 8, !tbaa !24
  %133 = getelementptr inbounds i8, ptr %131, i64 %132
  store ptr %133, ptr %38, align 8, !tbaa !4
  call void @llvm.lifetime.start.p0(i64 8, ptr %39) #10
  %134 = load ptr, ptr %12, align 8, !tbaa !4
  %135 = getelementptr inbounds %struct.Layer, ptr %134, i32 0, i32 10
  %136 = load ptr, ptr %135, align 8, !tbaa !89
  %137 = load i64, ptr %36, align 8, !tbaa !24
  %138 = getelementptr inbounds i8, ptr %136, i64 %137
  store ptr %138, ptr %39, align 8, !tbaa !4
  call void @llvm.lifetime.start.p0(i64 8, ptr %40) #10
  %139 = load ptr, ptr %12, align 8, !tbaa !4
  %140 = getelementptr inbounds %struct.Layer, ptr %139, i32 0, i32 9
  %141 = load ptr, ptr %140, align 8, !tbaa !88
  %142 = load i64, ptr %37, align 8, !tbaa !24
  %143 = getelementptr inbounds i8, ptr %141, i64 %142
  store ptr %143, ptr %40, align 8, !tbaa !4
  call void @llvm.lifetime.start.p0(i64 8, ptr %41) #10
  %144 = load ptr, ptr %12, align 8, !tbaa !4
  %145 = getelementptr inbounds %struct.Layer, ptr %144, i32 0, i32 10
  %146 = load ptr, ptr %145, align 8, !tbaa !89
  %147 = load i64, ptr %37, align 8, !tbaa !24
  %148 = getelementptr inbounds i8, ptr %146, i64 %147
  store ptr %148, ptr %41, align 8, !tbaa !4
  %149 = load ptr, ptr %19, align 8, !tbaa !4
  %150 = icmp ne ptr %149, null
  br i1 %150, label %151, label %170

151:                                              ; preds = %109
  %152 = load i32, ptr %31, align 4, !tbaa !8
  %153 = load ptr, ptr %19, align 8, !tbaa !4
  %154 = getelementptr inbounds %struct.Path, ptr %153, i32 0, i32 2
  %155 = load i32, ptr %154, align 4, !tbaa !132
  %156 = icmp sge i32 %152, %155
  br i1 %156, label %157, label %170

157:                                              ; preds = %151
  %158 = load ptr, ptr %11, align 8, !tbaa !4
  %159 = load ptr, ptr %12, align 8, !tbaa !4
  %160 = load ptr, ptr %19, align 8, !tbaa !4
  %161 = load i32, ptr %15, align 4, !tbaa !8
  %162 = load i64, ptr %36, align 8, !tbaa !24
  %163 = load i32, ptr %31, align 4, !tbaa !8
  call void @gather_tile(ptr noundef %158, ptr noundef %159, ptr noundef %160, i32 noundef %161, i64 noundef %162, i32 noundef %163)
  %164 = load ptr, ptr %19, align 8, !tbaa !4
  %165 = getelementptr inbounds %struct.Path, ptr %164, i32 0, i32 3
  %166 = load ptr, ptr %165, align 8, !tbaa !133
  store ptr %166, ptr %38, align 8, !tbaa !4
  %167 = load ptr, ptr %19, align 8, !tbaa !4
  %168 = getelementptr inbounds %struct.Path, ptr %167, i32 0, i32 4
  %169 = load ptr, ptr %168, align 8, !tbaa !134
  store ptr %169, ptr %39, align 8, !tbaa !4
  br label %170

170:                                              ; preds = %157, %151, %109
  %171 = load ptr, ptr %13, align 8, !tbaa !4
  %172 = load i32, ptr %21, align 4, !tbaa !8
  %173 = load ptr, ptr %38, align 8, !tbaa !4
  %174 = load ptr, ptr %40, align 8, !tbaa !4
  %175 = load i32, ptr %22, align 4, !tbaa !8
  %176 = load ptr, ptr %11, align 8, !tbaa !4
  %177 = getelementptr inbounds %struct.Model, ptr %176, i32 0, i32 13
  %178 = load float, ptr %177, align 4, !tbaa !142
  %179 = load i32, ptr %34, align 4, !tbaa !8
  %180 = load i32, ptr %35, align 4, !tbaa !8
  %181 = load i32, ptr %20, align 4, !tbaa !8
  %182 = getelementptr inbounds [4 x <16 x float>], ptr %27, i64 0, i64 0
  %183 = getelementptr inbounds [4 x <16 x float>], ptr %28, i64 0, i64 0
  call void @score_tile(ptr noundef %171, i32 noundef %172, ptr noundef %173, ptr noundef %174, i32 noundef %175, float noundef %178, i32 noundef %179, i32 noundef %180, i32 noundef %181, ptr noundef %182, ptr noundef %183)
  call void @llvm.lifetime.start.p0(i64 4, ptr %42) #10
  store i32 0, ptr %42, align 4, !tbaa !8
  br label %184

184:                                              ; preds = %313, %170
  %185 = load i32, ptr %42, align 4, !tbaa !8
  %186 = load i32, ptr %20, align 4, !tbaa !8
  %187 = icmp slt i32 %185, %186
  br i1 %187, label %189, label %188

188:                                              ; preds = %184
  store i32 11, ptr %32, align 4
  call void @llvm.lifetime.end.p0(i64 4, ptr %42) #10
  br label %316

189:                                              ; preds = %184
  call void @llvm.lifetime.start.p0(i64 4, ptr %43) #10
  %190 = load i32, ptr %42, align 4, !tbaa !8
  %191 = sext i32 %190 to i64
  %192 = getelementptr inbounds [4 x <16 x float>], ptr %27, i64 0, i64 %191
  %193 = load <16 x float>, ptr %192, align 16, !tbaa !74
  %194 = load i32, ptr %42, align 4, !tbaa !8
  %195 = sext i32 %194 to i64
  %196 = getelementptr inbounds [4 x <16 x float>], ptr %28, i64 0, i64 %195
  %197 = load <16 x float>, ptr %196, align 16, !tbaa !74
  %198 = call <16 x float> @llvm.maxnum.v16f32(<16 x float> %193, <16 x float> %197)
  %199 = call float @llvm.vector.reduce.fmax.v16f32(<16 x float> %198)
  store float %199, ptr %43, align 4, !tbaa !28
  %200 = load float, ptr %43, align 4, !tbaa !28
  %201 = load i32, ptr %42, align 4, !tbaa !8
  %202 = sext i32 %201 to i64
  %203 = getelementptr inbounds [4 x float], ptr %23, i64 0, i64 %202
  %204 = load float, ptr %203, align 4, !tbaa !28
  %205 = fcmp ogt float %200, %204
  br i1 %205, label %206, label %208

206:                                              ; preds = %189
  %207 = load float, ptr %43, align 4, !tbaa !28
  br label %213

208:                                              ; preds = %189
  %209 = load i32, ptr %42, align 4, !tbaa !8
  %210 = sext i32 %209 to i64
  %211 = getelementptr inbounds [4 x float], ptr %23, i64 0, i64 %210
  %212 = load float, ptr %211, align 4, !tbaa !28
  br label %213

213:                                              ; preds = %208, %206
  %214 = phi float [ %207, %206 ], [ %212, %208 ]
  store float %214, ptr %43, align 4, !tbaa !28
  %215 = load i32, ptr %42, align 4, !tbaa !8
  %216 = sext i32 %215 to i64
  %217 = getelementptr inbounds [4 x float], ptr %23, i64 0, i64 %216
  %218 = load float, ptr %217, align 4, !tbaa !28
  %219 = load float, ptr %43, align 4, !tbaa !28
  %220 = fsub float %218, %219
  %221 = call <16 x float> @splat(float noundef %220)
  %222 = call <16 x float> @exp16(<16 x float> noundef %221)
  %223 = extractelement <16 x float> %222, i32 0
  %224 = load i32, ptr %42, align 4, !tbaa !8
  %225 = sext i32 %224 to i64
  %226 = getelementptr inbounds [4 x float], ptr %24, i64 0, i64 %225
  store float %223, ptr %226, align 4, !tbaa !28
  %227 = load float, ptr %43, align 4, !tbaa !28
  %228 = load i32, ptr %42, align 4, !tbaa !8
  %229 = sext i32 %228 to i64
  %230 = getelementptr inbounds [4 x float], ptr %23, i64 0, i64 %229
  store float %227, ptr %230, align 4, !tbaa !28
  call void @llvm.lifetime.start.p0(i64 64, ptr %44) #10
  %231 = load i32, ptr %42, align 4, !tbaa !8
  %232 = sext i32 %231 to i64
  %233 = getelementptr inbounds [4 x <16 x float>], ptr %27, i64 0, i64 %232
  %234 = load <16 x float>, ptr %233, align 16, !tbaa !74
  %235 = load float, ptr %43, align 4, !tbaa !28
  %236 = call <16 x float> @splat(float noundef %235)
  %237 = fsub <16 x float> %234, %236
  %238 = call <16 x float> @exp16(<16 x float> noundef %237)
  store <16 x float> %238, ptr %44, align 4, !tbaa !74
  call void @llvm.lifetime.start.p0(i64 64, ptr %45) #10
  %239 = load i32, ptr %42, align 4, !tbaa !8
  %240 = sext i32 %239 to i64
  %241 = getelementptr inbounds [4 x <16 x float>], ptr %28, i64 0, i64 %240
  %242 = load <16 x float>, ptr %241, align 16, !tbaa !74
  %243 = load float, ptr %43, align 4, !tbaa !28
  %244 = call <16 x float> @splat(float noundef %243)
  %245 = fsub <16 x float> %242, %244
  %246 = call <16 x float> @exp16(<16 x float> noundef %245)
  store <16 x float> %246, ptr %45, align 4, !tbaa !74
  %247 = load i32, ptr %42, align 4, !tbaa !8
  %248 = sext i32 %247 to i64
  %249 = getelementptr inbounds [4 x <16 x float>], ptr %26, i64 0, i64 %248
  %250 = load <16 x float>, ptr %249, align 16, !tbaa !74
  %251 = load i32, ptr %42, align 4, !tbaa !8
  %252 = sext i32 %251 to i64
  %253 = getelementptr inbounds [4 x float], ptr %24, i64 0, i64 %252
  %254 = load float, ptr %253, align 4, !tbaa !28
  %255 = call <16 x float> @splat(float noundef %254)
  %256 = fmul <16 x float> %250, %255
  %257 = load i32, ptr %42, align 4, !tbaa !8
  %258 = sext i32 %257 to i64
  %259 = getelementptr inbounds [4 x <16 x float>], ptr %26, i64 0, i64 %258
  store <16 x float> %256, ptr %259, align 16, !tbaa !74
  %260 = getelementptr inbounds [128 x float], ptr %25, i64 0, i64 0
  %261 = load i32, ptr %42, align 4, !tbaa !8
  %262 = mul nsw i32 %261, 32
  %263 = sext i32 %262 to i64
  %264 = getelementptr inbounds float, ptr %260, i64 %263
  %265 = load <16 x float>, ptr %44, align 4, !tbaa !74
  call void @store(ptr noundef %264, <16 x float> noundef %265)
  %266 = getelementptr inbounds [128 x float], ptr %25, i64 0, i64 0
  %267 = load i32, ptr %42, align 4, !tbaa !8
  %268 = mul nsw i32 %267, 32
  %269 = sext i32 %268 to i64
  %270 = getelementptr inbounds float, ptr %266, i64 %269
  %271 = getelementptr inbounds float, ptr %270, i64 16
  %272 = load <16 x float>, ptr %45, align 4, !tbaa !74
  call void @store(ptr noundef %271, <16 x float> noundef %272)
  call void @llvm.lifetime.start.p0(i64 64, ptr %46) #10
  store <16 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7, i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15>, ptr %46, align 4, !tbaa !74
  %273 = load <16 x float>, ptr %44, align 4, !tbaa !74
  %274 = bitcast <16 x float> %273 to <16 x i32>
  %275 = load i32, ptr %34, align 4, !tbaa !8
  %276 = insertelement <16 x i32> poison, i32 %275, i64 0
  %277 = shufflevector <16 x i32> %276, <16 x i32> poison, <16 x i32> zeroinitializer
  %278 = icmp sge <16 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7, i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15>, %277
  %279 = sext <16 x i1> %278 to <16 x i32>
  %280 = load i32, ptr %35, align 4, !tbaa !8
  %281 = insertelement <16 x i32> poison, i32 %280, i64 0
  %282 = shufflevector <16 x i32> %281, <16 x i32> poison, <16 x i32> zeroinitializer
  %283 = icmp sle <16 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7, i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15>, %282
  %284 = sext <16 x i1> %283 to <16 x i32>
  %285 = and <16 x i32> %279, %284
  %286 = and <16 x i32> %274, %285
  %287 = bitcast <16 x i32> %286 to <16 x float>
  %288 = load i32, ptr %42, align 4, !tbaa !8
  %289 = sext i32 %288 to i64
  %290 = getelementptr inbounds [4 x <16 x float>], ptr %26, i64 0, i64 %289
  %291 = load <16 x float>, ptr %290, align 16, !tbaa !74
  %292 = fadd <16 x float> %291, %287
  store <16 x float> %292, ptr %290, align 16, !tbaa !74
  %293 = load <16 x float>, ptr %45, align 4, !tbaa !74
  %294 = bitcast <16 x float> %293 to <16 x i32>
  %295 = load i32, ptr %34, align 4, !tbaa !8
  %296 = insertelement <16 x i32> poison, i32 %295, i64 0
  %297 = shufflevector <16 x i32> %296, <16 x i32> poison, <16 x i32> zeroinitializer
  %298 = icmp sge <16 x i32> <i32 16, i32 17, i32 18, i32 19, i32 20, i32 21, i32 22, i32 23, i32 24, i32 25, i32 26, i32 27, i32 28, i32 29, i32 30, i32 31>, %297
  %299 = sext <16 x i1> %298 to <16 x i32>
  %300 = load i32, ptr %35, align 4, !tbaa !8
  %301 = insertelement <16 x i32> poison, i32 %300, i64 0
  %302 = shufflevector <16 x i32> %301, <16 x i32> poison, <16 x i32> zeroinitializer
  %303 = icmp sle <16 x i32> <i32 16, i32 17, i32 18, i32 19, i32 20, i32 21, i32 22, i32 23, i32 24, i32 25, i32 26, i32 27, i32 28, i32 29, i32 30, i32 31>, %302
  %304 = sext <16 x i1> %303 to <16 x i32>
  %305 = and <16 x i32> %299, %304
  %306 = and <16 x i32> %294, %305
  %307 = bitcast <16 x i32> %306 to <16 x float>
  %308 = load i32, ptr %42, align 4, !tbaa !8
  %309 = sext i32 %308 to i64
  %310 = getelementptr inbounds [4 x <16 x float>], ptr %26, i64 0, i64 %309
  %311 = load <16 x float>, ptr %310, align 16, !tbaa !74
  %312 = fadd <16 x float> %311, %307
  store <16 x float> %312, ptr %310, align 16, !tbaa !74
  call void @llvm.lifetime.end.p0(i64 64, ptr %46) #10
  call void @llvm.lifetime.end.p0(i64 64, ptr %45) #10
  call void @llvm.lifetime.end.p0(i64 64, ptr %44) #10
  call void @llvm.lifetime.end.p0(i64 4, ptr %43) #10
  br label %313

313:                                              ; preds = %213
  %314 = load i32, ptr %42, align 4, !tbaa !8
  %315 = add nsw i32 %314, 1
  store i32 %315, ptr %42, align 4, !tbaa !8
  br label %184, !llvm.loop !143

316:                                              ; preds = %188
  %317 = load ptr, ptr %18, align 8, !tbaa !4
  %318 = getelementptr inbounds [4 x float], ptr %24, i64 0, i64 0
  %319 = getelementptr inbounds [128 x float], ptr %25, i64 0, i64 0
  %320 = load ptr, ptr %39, align 8, !tbaa !4
  %321 = load ptr, ptr %41, align 8, !tbaa !4
  %322 = load i32, ptr %21, align 4, !tbaa !8
  %323 = load i32, ptr %22, align 4, !tbaa !8
  %324 = load i32, ptr %34, align 4, !tbaa !8
  %325 = load i32, ptr %35, align 4, !tbaa !8
  %326 = load i32, ptr %20, align 4, !tbaa !8
  call void @value_tile(ptr noundef %317, ptr noundef %318, ptr noundef %319, ptr noundef %320, ptr noundef %321, i32 noundef %322, i32 noundef %323, i32 noundef %324, i32 noundef %325, i32 noundef %326)
  call void @llvm.lifetime.end.p0(i64 8, ptr %41) #10
  call void @llvm.lifetime.end.p0(i64 8, ptr %40) #10
  call void @llvm.lifetime.end.p0(i64 8, ptr %39) #10
  call void @llvm.lifetime.end.p0(i64 8, ptr %38) #10
  call void @llvm.lifetime.end.p0(i64 8, ptr %37) #10
  call void @llvm.lifetime.end.p0(i64 8, ptr %36) #10
  call void @llvm.lifetime.end.p0(i64 4, ptr %35) #10
  call void @llvm.lifetime.end.p0(i64 4, ptr %34) #10
  call void @llvm.lifetime.end.p0(i64 4, ptr %33) #10
  br label %327

327:                                              ; preds = %316
  %328 = load i32, ptr %31, align 4, !tbaa !8
  %329 = add nsw i32 %328, 1
  store i32 %329, ptr %31, align 4, !tbaa !8
  br label %92, !llvm.loop !144

330:                                              ; preds = %97
  call void @llvm.lifetime.start.p0(i64 4, ptr %47) #10
  store i32 0, ptr %47, align 4, !tbaa !8
  br label %331

331:                                              ; preds = %375, %330
  %332 = load i32, ptr %47, align 4, !tbaa !8
  %333 = load i32, ptr %20, align 4, !tbaa !8
  %334 = icmp slt i32 %332, %333
  br i1 %334, label %336, label %335

335:                                              ; preds = %331
  store i32 14, ptr %32, align 4
  call void @llvm.lifetime.end.p0(i64 4, ptr %47) #10
  br label %378

336:                                              ; preds = %331
  call void @llvm.lifetime.start.p0(i64 64, ptr %48) #10
  %337 = load i32, ptr %47, align 4, !tbaa !8
  %338 = sext i32 %337 to i64
  %339 = getelementptr inbounds [4 x <16 x float>], ptr %26, i64 0, i64 %338
  %340 = load <16 x float>, ptr %339, align 16, !tbaa !74
  %341 = call float @sum16(<16 x float> noundef %340)
  %342 = fdiv float 1.000000e+00, %341
  %343 = call <16 x float> @splat(float noundef %342)
  store <16 x float> %343, ptr %48, align 4, !tbaa !74
  call void @llvm.lifetime.start.p0(i64 4, ptr %49) #10
  store i32 0, ptr %49, align 4, !tbaa !8
  br label %344

344:                                              ; preds = %371, %336
  %345 = load i32, ptr %49, align 4, !tbaa !8
  %346 = load i32, ptr %21, align 4, !tbaa !8
  %347 = icmp slt i32 %345, %346
  br i1 %347, label %349, label %348

348:                                              ; preds = %344
  store i32 17, ptr %32, align 4
  call void @llvm.lifetime.end.p0(i64 4, ptr %49) #10
  br label %374

349:                                              ; preds = %344
  %350 = load ptr, ptr %18, align 8, !tbaa !4
  %351 = load i32, ptr %47, align 4, !tbaa !8
  %352 = load i32, ptr %21, align 4, !tbaa !8
  %353 = mul nsw i32 %351, %352
  %354 = sext i32 %353 to i64
  %355 = getelementptr inbounds float, ptr %350, i64 %354
  %356 = load i32, ptr %49, align 4, !tbaa !8
  %357 = sext i32 %356 to i64
  %358 = getelementptr inbounds float, ptr %355, i64 %357
  %359 = load ptr, ptr %18, align 8, !tbaa !4
  %360 = load i32, ptr %47, align 4, !tbaa !8
  %361 = load i32, ptr %21, align 4, !tbaa !8
  %362 = mul nsw i32 %360, %361
  %363 = sext i32 %362 to i64
  %364 = getelementptr inbounds float, ptr %359, i64 %363
  %365 = load i32, ptr %49, align 4, !tbaa !8
  %366 = sext i32 %365 to i64
  %367 = getelementptr inbounds float, ptr %364, i64 %366
  %368 = call <16 x float> @load(ptr noundef %367)
  %369 = load <16 x float>, ptr %48, align 4, !tbaa !74
  %370 = fmul <16 x float> %368, %369
  call void @store(ptr noundef %358, <16 x float> noundef %370)
  br label %371

371:                                              ; preds = %349
  %372 = load i32, ptr %49, align 4, !tbaa !8
  %373 = add nsw i32 %372, 16
  store i32 %373, ptr %49, align 4, !tbaa !8
  br label %344, !llvm.loop !145

374:                                              ; preds = %348
  call void @llvm.lifetime.end.p0(i64 64, ptr %48) #10
  br label %375

375:                                              ; preds = %374
  %376 = load i32, ptr %47, align 4, !tbaa !8
  %377 = add nsw i32 %376, 1
  store i32 %377, ptr %47, align 4, !tbaa !8
  br label %331, !llvm.loop !146

378:                                              ; preds = %335
  call void @llvm.lifetime.end.p0(i64 256, ptr %28) #10
  call void @llvm.lifetime.end.p0(i64 256, ptr %27) #10
  call void @llvm.lifetime.end.p0(i64 256, ptr %26) #10
  call void @llvm.lifetime.end.p0(i64 512, ptr %25) #10
  call void @llvm.lifetime.end.p0(i64 16, ptr %24) #10
  call void @llvm.lifetime.end.p0(i64 16, ptr %23) #10
  call void @llvm.lifetime.end.p0(i64 4, ptr %22) #10
  call void @llvm.lifetime.end.p0(i64 4, ptr %21) #10
  ret void
}

; Function Attrs: alwaysinline nounwind
define internal i64 @kv_tile(ptr noundef %0, ptr noundef %1, i32 noundef %2, i32 noundef %3) #3 {
  %5 = alloca ptr, align 8
  %6 = alloca ptr, align 8
  %7 = alloca i32, align 4
  %8 = alloca i32, align 4
  %9 = alloca i32, align 4
  %10 = alloca i32, align 4
  %11 = alloca i64, align 8
  %12 = alloca i64, align 8
  store ptr %0, ptr %5, align 8, !tbaa !4
  store ptr %1, ptr %6, align 8, !tbaa !4
  store i32 %2, ptr %7, align 4, !tbaa !8
  store i32 %3, ptr %8, align 4, !tbaa !8
  call void @llvm.lifetime.start.p0(i64 4, ptr %9) #10
  %13 = load i32, ptr %8, align 4, !tbaa !8
  %14 = mul nsw i32 %13, 32
  store i32 %14, ptr %9, align 4, !tbaa !8
  call void @llvm.lifetime.start.p0(i64 4, ptr %10) #10
  %15 = load ptr, ptr %5, align 8, !tbaa !4
  %16 = getelementptr inbounds %struct.Model, ptr %15, i32 0, i32 9
  %17 = load i32, ptr %16, align 4, !tbaa !99
  store i32 %17, ptr %10, align 4, !tbaa !8
  call void @llvm.lifetime.start.p0(i64 8, ptr %11) #10
  %18 = load ptr, ptr %5, align 8, !tbaa !4
  %19 = getelementptr inbounds %struct.Model, ptr %18, i32 0, i32 4
  %20 = load i32, ptr %19, align 8, !tbaa !78
  %21 = load ptr, ptr %5, align 8, !tbaa !4
  %22 = getelementptr inbounds %struct.Model, ptr %21, i32 0, i32 8
  %23 = load i32, ptr %22, align 8, !tbaa !93
  %24 = icmp ne i32 %23, 0
  %25 = zext i1 %24 to i64
  %26 = select i1 %24, i32 2, i32 4
  %27 = mul nsw i32 %20, %26
  %28 = sext i32 %27 to i64
  store i64 %28, ptr %11, align 8, !tbaa !24
  call void @llvm.lifetime.start.p0(i64 8, ptr %12) #10
  %29 = load ptr, ptr %6, align 8, !tbaa !4
  %30 = load i32, ptr %9, align 4, !tbaa !8
  %31 = load i32, ptr %10, align 4, !tbaa !8
  %32 = sdiv i32 %30, %31
  %33 = sext i32 %32 to i64
  %34 = getelementptr inbounds i32, ptr %29, i64 %33
  %35 = load i32, ptr %34, align 4, !tbaa !8
  %36 = sext i32 %35 to i64
  %37 = load ptr, ptr %5, align 8, !tbaa !4
  %38 = getelementptr inbounds %struct.Model, ptr %37, i32 0, i32 3
  %39 = load i32, ptr %38, align 4, !tbaa !84
  %40 = sext i32 %39 to i64
  %41 = mul nsw i64 %36, %40
  %42 = load i32, ptr %7, align 4, !tbaa !8
  %43 = sext i32 %42 to i64
  %44 = add nsw i64 %41, %43
  store i64 %44, ptr %12, align 8, !tbaa !24
  %45 = load i64, ptr %12, align 8, !tbaa !24
  %46 = load i32, ptr %10, align 4, !tbaa !8
  %47 = sext i32 %46 to i64
  %48 = mul nsw i64 %45, %47
  %49 = load i32, ptr %9, align 4, !tbaa !8
  %50 = load i32, ptr %10, align 4, !tbaa !8
  %51 = srem i32 %49, %50
  %52 = sdiv i32 %51, 32
  %53 = mul nsw i32 %52, 32
  %54 = sext i32 %53 to i64
  %55 = add nsw i64 %48, %54
  %56 = load i64, ptr %11, align 8, !tbaa !24
  %57 = mul nsw i64 %55, %56
  call void @llvm.lifetime.end.p0(i64 8, ptr %12) #10
  call void @llvm.lifetime.end.p0(i64 8, ptr %11) #10
  call void @llvm.lifetime.end.p0(i64 4, ptr %10) #10
  call void @llvm.lifetime.end.p0(i64 4, ptr %9) #10
  ret i64 %57
}

; Function Attrs: nounwind
define internal void @gather_tile(ptr noundef %0, ptr noundef %1, ptr noundef %2, i32 noundef %3, i64 noundef %4, i32 noundef %5) #0 {
  %7 = alloca ptr, align 8
  %8 = alloca ptr, align 8
  %9 = alloca ptr, align 8
  %10 = alloca i32, align 4
  %11 = alloca i64, align 8
  %12 = alloca i32, align 4
  %13 = alloca ptr, align 8
  %14 = alloca i64, align 8
  %15 = alloca i32, align 4
  %16 = alloca i32, align 4
  %17 = alloca i32, align 4
  %18 = alloca %struct.Place, align 8
  %19 = alloca %struct.Place, align 8
  store ptr %0, ptr %7, align 8, !tbaa !4
  store ptr %1, ptr %8, align 8, !tbaa !4
  store ptr %2, ptr %9, align 8, !tbaa !4
  store i32 %3, ptr %10, align 4, !tbaa !8
  store i64 %4, ptr %11, align 8, !tbaa !24
  store i32 %5, ptr %12, align 4, !tbaa !8
  call void @llvm.lifetime.start.p0(i64 8, ptr %13) #10
  %20 = load ptr, ptr %9, align 8, !tbaa !4
  %21 = getelementptr inbounds %struct.Path, ptr %20, i32 0, i32 0
  %22 = load ptr, ptr %21, align 8, !tbaa !128
  store ptr %22, ptr %13, align 8, !tbaa !4
  call void @llvm.lifetime.start.p0(i64 8, ptr %14) #10
  %23 = load ptr, ptr %7, align 8, !tbaa !4
  %24 = getelementptr inbounds %struct.Model, ptr %23, i32 0, i32 4
  %25 = load i32, ptr %24, align 8, !tbaa !78
  %26 = sext i32 %25 to i64
  %27 = mul nsw i64 32, %26
  %28 = load ptr, ptr %7, align 8, !tbaa !4
  %29 = getelementptr inbounds %struct.Model, ptr %28, i32 0, i32 8
  %30 = load i32, ptr %29, align 8, !tbaa !93
  %31 = icmp ne i32 %30, 0
  %32 = zext i1 %31 to i64
  %33 = select i1 %31, i32 2, i32 4
  %34 = sext i32 %33 to i64
  %35 = mul nsw i64 %27, %34
  store i64 %35, ptr %14, align 8, !tbaa !24
  %36 = load ptr, ptr %9, align 8, !tbaa !4
  %37 = getelementptr inbounds %struct.Path, ptr %36, i32 0, i32 3
  %38 = load ptr, ptr %37, align 8, !tbaa !133
  %39 = load ptr, ptr %8, align 8, !tbaa !4
  %40 = getelementptr inbounds %struct.Layer, ptr %39, i32 0, i32 9
  %41 = load ptr, ptr %40, align 8, !tbaa !88
  %42 = load i64, ptr %11, align 8, !tbaa !24
  %43 = getelementptr inbounds i8, ptr %41, i64 %42
  %44 = load i64, ptr %14, align 8, !tbaa !24
  call void @llvm.memcpy.p0.p0.i64(ptr align 1 %38, ptr align 1 %43, i64 %44, i1 false)
  %45 = load ptr, ptr %9, align 8, !tbaa !4
  %46 = getelementptr inbounds %struct.Path, ptr %45, i32 0, i32 4
  %47 = load ptr, ptr %46, align 8, !tbaa !134
  %48 = load ptr, ptr %8, align 8, !tbaa !4
  %49 = getelementptr inbounds %struct.Layer, ptr %48, i32 0, i32 10
  %50 = load ptr, ptr %49, align 8, !tbaa !89
  %51 = load i64, ptr %11, align 8, !tbaa !24
  %52 = getelementptr inbounds i8, ptr %50, i64 %51
  %53 = load i64, ptr %14, align 8, !tbaa !24
  call void @llvm.memcpy.p0.p0.i64(ptr align 1 %47, ptr align 1 %52, i64 %53, i1 false)
  call void @llvm.lifetime.start.p0(i64 4, ptr %15) #10
  %54 = load ptr, ptr %9, align 8, !tbaa !4
  %55 = getelementptr inbounds %struct.Path, ptr %54, i32 0, i32 1
  %56 = load i32, ptr %55, align 8, !tbaa !130
  store i32 %56, ptr %15, align 4, !tbaa !8
  br label %57

57:                                               ; preds = %127, %6
  %58 = load ptr, ptr %13, align 8, !tbaa !4
  %59 = getelementptr inbounds %struct.Batch, ptr %58, i32 0, i32 22
  %60 = load ptr, ptr %59, align 8, !tbaa !121
  %61 = load i32, ptr %15, align 4, !tbaa !8
  %62 = sext i32 %61 to i64
  %63 = getelementptr inbounds i32, ptr %60, i64 %62
  %64 = load i32, ptr %63, align 4, !tbaa !8
  %65 = icmp sge i32 %64, 0
  br i1 %65, label %67, label %66

66:                                               ; preds = %57
  store i32 2, ptr %16, align 4
  call void @llvm.lifetime.end.p0(i64 4, ptr %15) #10
  br label %135

67:                                               ; preds = %57
  call void @llvm.lifetime.start.p0(i64 4, ptr %17) #10
  %68 = load ptr, ptr %13, align 8, !tbaa !4
  %69 = getelementptr inbounds %struct.Batch, ptr %68, i32 0, i32 5
  %70 = load ptr, ptr %69, align 8, !tbaa !131
  %71 = load i32, ptr %15, align 4, !tbaa !8
  %72 = sext i32 %71 to i64
  %73 = getelementptr inbounds i32, ptr %70, i64 %72
  %74 = load i32, ptr %73, align 4, !tbaa !8
  %75 = load i32, ptr %12, align 4, !tbaa !8
  %76 = mul nsw i32 %75, 32
  %77 = sub nsw i32 %74, %76
  store i32 %77, ptr %17, align 4, !tbaa !8
  %78 = load i32, ptr %17, align 4, !tbaa !8
  %79 = icmp slt i32 %78, 0
  br i1 %79, label %83, label %80

80:                                               ; preds = %67
  %81 = load i32, ptr %17, align 4, !tbaa !8
  %82 = icmp sge i32 %81, 32
  br i1 %82, label %83, label %84

83:                                               ; preds = %80, %67
  store i32 4, ptr %16, align 4
  br label %124

84:                                               ; preds = %80
  call void @llvm.lifetime.start.p0(i64 16, ptr %18) #10
  %85 = getelementptr inbounds %struct.Place, ptr %18, i32 0, i32 0
  %86 = load ptr, ptr %7, align 8, !tbaa !4
  %87 = load i32, ptr %17, align 4, !tbaa !8
  %88 = call i32 @key_column(ptr noundef %86, i32 noundef %87)
  %89 = sext i32 %88 to i64
  store i64 %89, ptr %85, align 8, !tbaa !94
  %90 = getelementptr inbounds %struct.Place, ptr %18, i32 0, i32 1
  %91 = load i32, ptr %17, align 4, !tbaa !8
  %92 = sext i32 %91 to i64
  %93 = load ptr, ptr %7, align 8, !tbaa !4
  %94 = getelementptr inbounds %struct.Model, ptr %93, i32 0, i32 4
  %95 = load i32, ptr %94, align 8, !tbaa !78
  %96 = sext i32 %95 to i64
  %97 = mul nsw i64 %92, %96
  store i64 %97, ptr %90, align 8, !tbaa !97
  %98 = load ptr, ptr %7, align 8, !tbaa !4
  %99 = load ptr, ptr %8, align 8, !tbaa !4
  %100 = load ptr, ptr %7, align 8, !tbaa !4
  %101 = load ptr, ptr %13, align 8, !tbaa !4
  %102 = getelementptr inbounds %struct.Batch, ptr %101, i32 0, i32 6
  %103 = load ptr, ptr %102, align 8, !tbaa !119
  %104 = load i32, ptr %15, align 4, !tbaa !8
  %105 = sext i32 %104 to i64
  %106 = getelementptr inbounds i32, ptr %103, i64 %105
  %107 = load i32, ptr %106, align 4, !tbaa !8
  %108 = load i32, ptr %10, align 4, !tbaa !8
  %109 = call { i64, i64 } @place_of(ptr noundef %100, i32 noundef %107, i32 noundef %108)
  %110 = getelementptr inbounds { i64, i64 }, ptr %19, i32 0, i32 0
  %111 = extractvalue { i64, i64 } %109, 0
  store i64 %111, ptr %110, align 8
  %112 = getelementptr inbounds { i64, i64 }, ptr %19, i32 0, i32 1
  %113 = extractvalue { i64, i64 } %109, 1
  store i64 %113, ptr %112, align 8
  %114 = load ptr, ptr %9, align 8, !tbaa !4
  %115 = getelementptr inbounds %struct.Path, ptr %114, i32 0, i32 3
  %116 = load ptr, ptr %115, align 8, !tbaa !133
  %117 = load ptr, ptr %9, align 8, !tbaa !4
  %118 = getelementptr inbounds %struct.Path, ptr %117, i32 0, i32 4
  %119 = load ptr, ptr %118, align 8, !tbaa !134
  %120 = getelementptr inbounds { i64, i64 }, ptr %19, i32 0, i32 0
  %121 = load i64, ptr %120, align 8
  %122 = getelementptr inbounds { i64, i64 }, ptr %19, i32 0, i32 1
  %123 = load i64, ptr %122, align 8
  call void @copy_kv(ptr noundef %98, ptr noundef %99, i64 %121, i64 %123, ptr noundef %116, ptr noundef %119, ptr noundef byval(%struct.Place) align 8 %18)
  call void @llvm.lifetime.end.p0(i64 16, ptr %18) #10
  store i32 0, ptr %16, align 4
  br label %124

124:                                              ; preds = %84, %83
  call void @llvm.lifetime.end.p0(i64 4, ptr %17) #10
  %125 = load i32, ptr %16, align 4
  switch i32 %125, label %136 [
    i32 0, label %126
    i32 4, label %127
  ]

126:                                              ; preds = %124
  br label %127

127:                                              ; preds = %126, %124
  %128 = load ptr, ptr %13, align 8, !tbaa !4
  %129 = getelementptr inbounds %struct.Batch, ptr %128, i32 0, i32 22
  %130 = load ptr, ptr %129, align 8, !tbaa !121
  %131 = load i32, ptr %15, align 4, !tbaa !8
  %132 = sext i32 %131 to i64
  %133 = getelementptr inbounds i32, ptr %130, i64 %132
  %134 = load i32, ptr %133, align 4, !tbaa !8
  store i32 %134, ptr %15, align 4, !tbaa !8
  br label %57, !llvm.loop !147

135:                                              ; preds = %66
  call void @llvm.lifetime.end.p0(i64 8, ptr %14) #10
  call void @llvm.lifetime.end.p0(i64 8, ptr %13) #10
  ret void

136:                                              ; preds = %124
  unreachable
}

; Function Attrs: alwaysinline nounwind
define internal void @score_tile(ptr noundef %0, i32 noundef %1, ptr noundef %2, ptr noundef %3, i32 noundef %4, float noundef %5, i32 noundef %6, i32 noundef %7, i32 noundef %8, ptr noundef %9, ptr noundef %10) #4 {
  %12 = alloca ptr, align 8
  %13 = alloca i32, align 4
  %14 = alloca ptr, align 8
  %15 = alloca ptr, align 8
  %16 = alloca i32, align 4
  %17 = alloca float, align 4
  %18 = alloca i32, align 4
  %19 = alloca i32, align 4
  %20 = alloca i32, align 4
  %21 = alloca ptr, align 8
  %22 = alloca ptr, align 8
  %23 = alloca <16 x float>, align 4
  %24 = alloca <16 x float>, align 4
  %25 = alloca i32, align 4
  %26 = alloca i32, align 4
  %27 = alloca i32, align 4
  %28 = alloca i32, align 4
  %29 = alloca <16 x float>, align 4
  %30 = alloca <16 x i32>, align 4
  %31 = alloca <16 x i32>, align 4
  %32 = alloca <16 x i32>, align 4
  %33 = alloca <16 x i32>, align 4
  %34 = alloca i32, align 4
  store ptr %0, ptr %12, align 8, !tbaa !4
  store i32 %1, ptr %13, align 4, !tbaa !8
  store ptr %2, ptr %14, align 8, !tbaa !4
  store ptr %3, ptr %15, align 8, !tbaa !4
  store i32 %4, ptr %16, align 4, !tbaa !8
  store float %5, ptr %17, align 4, !tbaa !28
  store i32 %6, ptr %18, align 4, !tbaa !8
  store i32 %7, ptr %19, align 4, !tbaa !8
  store i32 %8, ptr %20, align 4, !tbaa !8
  store ptr %9, ptr %21, align 8, !tbaa !4
  store ptr %10, ptr %22, align 8, !tbaa !4
  call void @llvm.lifetime.start.p0(i64 64, ptr %23) #10
  call void @llvm.lifetime.start.p0(i64 64, ptr %24) #10
  call void @llvm.lifetime.start.p0(i64 4, ptr %25) #10
  store i32 0, ptr %25, align 4, !tbaa !8
  br label %35

35:                                               ; preds = %50, %11
  %36 = load i32, ptr %25, align 4, !tbaa !8
  %37 = load i32, ptr %20, align 4, !tbaa !8
  %38 = icmp slt i32 %36, %37
  br i1 %38, label %40, label %39

39:                                               ; preds = %35
  call void @llvm.lifetime.end.p0(i64 4, ptr %25) #10
  br label %53

40:                                               ; preds = %35
  %41 = call <16 x float> @splat(float noundef 0.000000e+00)
  %42 = load ptr, ptr %22, align 8, !tbaa !4
  %43 = load i32, ptr %25, align 4, !tbaa !8
  %44 = sext i32 %43 to i64
  %45 = getelementptr inbounds <16 x float>, ptr %42, i64 %44
  store <16 x float> %41, ptr %45, align 4, !tbaa !74
  %46 = load ptr, ptr %21, align 8, !tbaa !4
  %47 = load i32, ptr %25, align 4, !tbaa !8
  %48 = sext i32 %47 to i64
  %49 = getelementptr inbounds <16 x float>, ptr %46, i64 %48
  store <16 x float> %41, ptr %49, align 4, !tbaa !74
  br label %50

50:                                               ; preds = %40
  %51 = load i32, ptr %25, align 4, !tbaa !8
  %52 = add nsw i32 %51, 1
  store i32 %52, ptr %25, align 4, !tbaa !8
  br label %35, !llvm.loop !148

53:                                               ; preds = %39
  call void @llvm.lifetime.start.p0(i64 4, ptr %26) #10
  store i32 0, ptr %26, align 4, !tbaa !8
  br label %54

54:                                               ; preds = %117, %53
  %55 = load i32, ptr %26, align 4, !tbaa !8
  %56 = load i32, ptr %13, align 4, !tbaa !8
  %57 = icmp slt i32 %55, %56
  br i1 %57, label %59, label %58

58:                                               ; preds = %54
  store i32 5, ptr %27, align 4
  call void @llvm.lifetime.end.p0(i64 4, ptr %26) #10
  br label %120

59:                                               ; preds = %54
  %60 = load ptr, ptr %14, align 8, !tbaa !4
  %61 = load i32, ptr %26, align 4, !tbaa !8
  %62 = sext i32 %61 to i64
  %63 = load i32, ptr %16, align 4, !tbaa !8
  call void @load_panel_row(ptr noundef %60, i64 noundef %62, i32 noundef %63, ptr noundef %23, ptr noundef %24)
  %64 = load ptr, ptr %15, align 8, !tbaa !4
  %65 = load i32, ptr %26, align 4, !tbaa !8
  %66 = load i32, ptr %16, align 4, !tbaa !8
  %67 = icmp ne i32 %66, 0
  %68 = zext i1 %67 to i64
  %69 = select i1 %67, i32 64, i32 128
  %70 = mul nsw i32 %65, %69
  %71 = sext i32 %70 to i64
  %72 = getelementptr inbounds i8, ptr %64, i64 %71
  call void @llvm.prefetch.p0(ptr %72, i32 0, i32 3, i32 1)
  call void @llvm.lifetime.start.p0(i64 4, ptr %28) #10
  store i32 0, ptr %28, align 4, !tbaa !8
  br label %73

73:                                               ; preds = %113, %59
  %74 = load i32, ptr %28, align 4, !tbaa !8
  %75 = load i32, ptr %20, align 4, !tbaa !8
  %76 = icmp slt i32 %74, %75
  br i1 %76, label %78, label %77

77:                                               ; preds = %73
  store i32 8, ptr %27, align 4
  call void @llvm.lifetime.end.p0(i64 4, ptr %28) #10
  br label %116

78:                                               ; preds = %73
  call void @llvm.lifetime.start.p0(i64 64, ptr %29) #10
  %79 = load ptr, ptr %12, align 8, !tbaa !4
  %80 = load i32, ptr %28, align 4, !tbaa !8
  %81 = load i32, ptr %13, align 4, !tbaa !8
  %82 = mul nsw i32 %80, %81
  %83 = load i32, ptr %26, align 4, !tbaa !8
  %84 = add nsw i32 %82, %83
  %85 = sext i32 %84 to i64
  %86 = getelementptr inbounds float, ptr %79, i64 %85
  %87 = load float, ptr %86, align 4, !tbaa !28
  %88 = call <16 x float> @splat(float noundef %87)
  store <16 x float> %88, ptr %29, align 4, !tbaa !74
  %89 = load <16 x float>, ptr %29, align 4, !tbaa !74
  %90 = load <16 x float>, ptr %23, align 4, !tbaa !74
  %91 = load ptr, ptr %21, align 8, !tbaa !4
  %92 = load i32, ptr %28, align 4, !tbaa !8
  %93 = sext i32 %92 to i64
  %94 = getelementptr inbounds <16 x float>, ptr %91, i64 %93
  %95 = load <16 x float>, ptr %94, align 4, !tbaa !74
  %96 = call <16 x float> @fma16(<16 x float> noundef %89, <16 x float> noundef %90, <16 x float> noundef %95)
  %97 = load ptr, ptr %21, align 8, !tbaa !4
  %98 = load i32, ptr %28, align 4, !tbaa !8
  %99 = sext i32 %98 to i64
  %100 = getelementptr inbounds <16 x float>, ptr %97, i64 %99
  store <16 x float> %96, ptr %100, align 4, !tbaa !74
  %101 = load <16 x float>, ptr %29, align 4, !tbaa !74
  %102 = load <16 x float>, ptr %24, align 4, !tbaa !74
  %103 = load ptr, ptr %22, align 8, !tbaa !4
  %104 = load i32, ptr %28, align 4, !tbaa !8
  %105 = sext i32 %104 to i64
  %106 = getelementptr inbounds <16 x float>, ptr %103, i64 %105
  %107 = load <16 x float>, ptr %106, align 4, !tbaa !74
  %108 = call <16 x float> @fma16(<16 x float> noundef %101, <16 x float> noundef %102, <16 x float> noundef %107)
  %109 = load ptr, ptr %22, align 8, !tbaa !4
  %110 = load i32, ptr %28, align 4, !tbaa !8
  %111 = sext i32 %110 to i64
  %112 = getelementptr inbounds <16 x float>, ptr %109, i64 %111
  store <16 x float> %108, ptr %112, align 4, !tbaa !74
  call void @llvm.lifetime.end.p0(i64 64, ptr %29) #10
  br label %113

113:                                              ; preds = %78
  %114 = load i32, ptr %28, align 4, !tbaa !8
  %115 = add nsw i32 %114, 1
  store i32 %115, ptr %28, align 4, !tbaa !8
  br label %73, !llvm.loop !149

116:                                              ; preds = %77
  br label %117

117:                                              ; preds = %116
  %118 = load i32, ptr %26, align 4, !tbaa !8
  %119 = add nsw i32 %118, 1
  store i32 %119, ptr %26, align 4, !tbaa !8
  br label %54, !llvm.loop !150

120:                                              ; preds = %58
  call void @llvm.lifetime.start.p0(i64 64, ptr %30) #10
  store <16 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7, i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15>, ptr %30, align 4, !tbaa !74
  call void @llvm.lifetime.start.p0(i64 64, ptr %31) #10
  %121 = load i32, ptr %18, align 4, !tbaa !8
  %122 = insertelement <16 x i32> poison, i32 %121, i64 0
  %123 = shufflevector <16 x i32> %122, <16 x i32> poison, <16 x i32> zeroinitializer
  %124 = icmp sge <16 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7, i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15>, %123
  %125 = sext <16 x i1> %124 to <16 x i32>
  %126 = load i32, ptr %19, align 4, !tbaa !8
  %127 = insertelement <16 x i32> poison, i32 %126, i64 0
  %128 = shufflevector <16 x i32> %127, <16 x i32> poison, <16 x i32> zeroinitializer
  %129 = icmp sle <16 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7, i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15>, %128
  %130 = sext <16 x i1> %129 to <16 x i32>
  %131 = and <16 x i32> %125, %130
  store <16 x i32> %131, ptr %31, align 4, !tbaa !74
  call void @llvm.lifetime.start.p0(i64 64, ptr %32) #10
  %132 = load i32, ptr %18, align 4, !tbaa !8
  %133 = insertelement <16 x i32> poison, i32 %132, i64 0
  %134 = shufflevector <16 x i32> %133, <16 x i32> poison, <16 x i32> zeroinitializer
  %135 = icmp sge <16 x i32> <i32 16, i32 17, i32 18, i32 19, i32 20, i32 21, i32 22, i32 23, i32 24, i32 25, i32 26, i32 27, i32 28, i32 29, i32 30, i32 31>, %134
  %136 = sext <16 x i1> %135 to <16 x i32>
  %137 = load i32, ptr %19, align 4, !tbaa !8
  %138 = insertelement <16 x i32> poison, i32 %137, i64 0
  %139 = shufflevector <16 x i32> %138, <16 x i32> poison, <16 x i32> zeroinitializer
  %140 = icmp sle <16 x i32> <i32 16, i32 17, i32 18, i32 19, i32 20, i32 21, i32 22, i32 23, i32 24, i32 25, i32 26, i32 27, i32 28, i32 29, i32 30, i32 31>, %139
  %141 = sext <16 x i1> %140 to <16 x i32>
  %142 = and <16 x i32> %136, %141
  store <16 x i32> %142, ptr %32, align 4, !tbaa !74
  call void @llvm.lifetime.start.p0(i64 64, ptr %33) #10
  %143 = call <16 x float> @splat(float noundef 0xFFF0000000000000)
  %144 = bitcast <16 x float> %143 to <16 x i32>
  store <16 x i32> %144, ptr %33, align 4, !tbaa !74
  call void @llvm.lifetime.start.p0(i64 4, ptr %34) #10
  store i32 0, ptr %34, align 4, !tbaa !8
  br label %145

145:                                              ; preds = %193, %120
  %146 = load i32, ptr %34, align 4, !tbaa !8
  %147 = load i32, ptr %20, align 4, !tbaa !8
  %148 = icmp slt i32 %146, %147
  br i1 %148, label %150, label %149

149:                                              ; preds = %145
  store i32 11, ptr %27, align 4
  call void @llvm.lifetime.end.p0(i64 4, ptr %34) #10
  br label %196

150:                                              ; preds = %145
  %151 = load ptr, ptr %21, align 8, !tbaa !4
  %152 = load i32, ptr %34, align 4, !tbaa !8
  %153 = sext i32 %152 to i64
  %154 = getelementptr inbounds <16 x float>, ptr %151, i64 %153
  %155 = load <16 x float>, ptr %154, align 4, !tbaa !74
  %156 = load float, ptr %17, align 4, !tbaa !28
  %157 = call <16 x float> @splat(float noundef %156)
  %158 = fmul <16 x float> %155, %157
  %159 = bitcast <16 x float> %158 to <16 x i32>
  %160 = load <16 x i32>, ptr %31, align 4, !tbaa !74
  %161 = and <16 x i32> %159, %160
  %162 = load <16 x i32>, ptr %33, align 4, !tbaa !74
  %163 = load <16 x i32>, ptr %31, align 4, !tbaa !74
  %164 = xor <16 x i32> %163, <i32 -1, i32 -1, i32 -1, i32 -1, i32 -1, i32 -1, i32 -1, i32 -1, i32 -1, i32 -1, i32 -1, i32 -1, i32 -1, i32 -1, i32 -1, i32 -1>
  %165 = and <16 x i32> %162, %164
  %166 = or <16 x i32> %161, %165
  %167 = bitcast <16 x i32> %166 to <16 x float>
  %168 = load ptr, ptr %21, align 8, !tbaa !4
  %169 = load i32, ptr %34, align 4, !tbaa !8
  %170 = sext i32 %169 to i64
  %171 = getelementptr inbounds <16 x float>, ptr %168, i64 %170
  store <16 x float> %167, ptr %171, align 4, !tbaa !74
  %172 = load ptr, ptr %22, align 8, !tbaa !4
  %173 = load i32, ptr %34, align 4, !tbaa !8
  %174 = sext i32 %173 to i64
  %175 = getelementptr inbounds <16 x float>, ptr %172, i64 %174
  %176 = load <16 x float>, ptr %175, align 4, !tbaa !74
  %177 = load float, ptr %17, align 4, !tbaa !28
  %178 = call <16 x float> @splat(float noundef %177)
  %179 = fmul <16 x float> %176, %178
  %180 = bitcast <16 x float> %179 to <16 x i32>
  %181 = load <16 x i32>, ptr %32, align 4, !tbaa !74
  %182 = and <16 x i32> %180, %181
  %183 = load <16 x i32>, ptr %33, align 4, !tbaa !74
  %184 = load <16 x i32>, ptr %32, align 4, !tbaa !74
  %185 = xor <16 x i32> %184, <i32 -1, i32 -1, i32 -1, i32 -1, i32 -1, i32 -1, i32 -1, i32 -1, i32 -1, i32 -1, i32 -1, i32 -1, i32 -1, i32 -1, i32 -1, i32 -1>
  %186 = and <16 x i32> %183, %185
  %187 = or <16 x i32> %182, %186
  %188 = bitcast <16 x i32> %187 to <16 x float>
  %189 = load ptr, ptr %22, align 8, !tbaa !4
  %190 = load i32, ptr %34, align 4, !tbaa !8
  %191 = sext i32 %190 to i64
  %192 = getelementptr inbounds <16 x float>, ptr %189, i64 %191
  store <16 x float> %188, ptr %192, align 4, !tbaa !74
  br label %193

193:                                              ; preds = %150
  %194 = load i32, ptr %34, align 4, !tbaa !8
  %195 = add nsw i32 %194, 1
  store i32 %195, ptr %34, align 4, !tbaa !8
  br label %145, !llvm.loop !151

196:                                              ; preds = %149
  call void @llvm.lifetime.end.p0(i64 64, ptr %33) #10
  call void @llvm.lifetime.end.p0(i64 64, ptr %32) #10
  call void @llvm.lifetime.end.p0(i64 64, ptr %31) #10
  call void @llvm.lifetime.end.p0(i64 64, ptr %30) #10
  call void @llvm.lifetime.end.p0(i64 64, ptr %24) #10
  call void @llvm.lifetime.end.p0(i64 64, ptr %23) #10
  ret void
}

; Function Attrs: nocallback nofree nosync nounwind speculatable willreturn memory(none)
declare float @llvm.vector.reduce.fmax.v16f32(<16 x float>) #8

; Function Attrs: alwaysinline nounwind
define internal void @value_tile(ptr noundef %0, ptr noundef %1, ptr noundef %2, ptr noundef %3, ptr noundef %4, i32 noundef %5, i32 noundef %6, i32 noundef %7, i32 noundef %8, i32 noundef %9) #4 {
  %11 = alloca ptr, align 8
  %12 = alloca ptr, align 8
  %13 = alloca ptr, align 8
  %14 = alloca ptr, align 8
  %15 = alloca ptr, align 8
  %16 = alloca i32, align 4
  %17 = alloca i32, align 4
  %18 = alloca i32, align 4
  %19 = alloca i32, align 4
  %20 = alloca i32, align 4
  %21 = alloca i32, align 4
  %22 = alloca i32, align 4
  %23 = alloca [4 x <16 x float>], align 16
  %24 = alloca [4 x <16 x float>], align 16
  %25 = alloca <16 x float>, align 4
  %26 = alloca <16 x float>, align 4
  %27 = alloca i32, align 4
  %28 = alloca i64, align 8
  %29 = alloca i64, align 8
  %30 = alloca i32, align 4
  %31 = alloca i32, align 4
  %32 = alloca <16 x float>, align 4
  %33 = alloca i32, align 4
  store ptr %0, ptr %11, align 8, !tbaa !4
  store ptr %1, ptr %12, align 8, !tbaa !4
  store ptr %2, ptr %13, align 8, !tbaa !4
  store ptr %3, ptr %14, align 8, !tbaa !4
  store ptr %4, ptr %15, align 8, !tbaa !4
  store i32 %5, ptr %16, align 4, !tbaa !8
  store i32 %6, ptr %17, align 4, !tbaa !8
  store i32 %7, ptr %18, align 4, !tbaa !8
  store i32 %8, ptr %19, align 4, !tbaa !8
  store i32 %9, ptr %20, align 4, !tbaa !8
  call void @llvm.lifetime.start.p0(i64 4, ptr %21) #10
  store i32 0, ptr %21, align 4, !tbaa !8
  br label %34

34:                                               ; preds = %206, %10
  %35 = load i32, ptr %21, align 4, !tbaa !8
  %36 = load i32, ptr %16, align 4, !tbaa !8
  %37 = icmp slt i32 %35, %36
  br i1 %37, label %39, label %38

38:                                               ; preds = %34
  store i32 2, ptr %22, align 4
  call void @llvm.lifetime.end.p0(i64 4, ptr %21) #10
  br label %209

39:                                               ; preds = %34
  call void @llvm.lifetime.start.p0(i64 256, ptr %23) #10
  call void @llvm.lifetime.start.p0(i64 256, ptr %24) #10
  call void @llvm.lifetime.start.p0(i64 64, ptr %25) #10
  call void @llvm.lifetime.start.p0(i64 64, ptr %26) #10
  call void @llvm.lifetime.start.p0(i64 4, ptr %27) #10
  store i32 0, ptr %27, align 4, !tbaa !8
  br label %40

40:                                               ; preds = %87, %39
  %41 = load i32, ptr %27, align 4, !tbaa !8
  %42 = load i32, ptr %20, align 4, !tbaa !8
  %43 = icmp slt i32 %41, %42
  br i1 %43, label %45, label %44

44:                                               ; preds = %40
  store i32 5, ptr %22, align 4
  call void @llvm.lifetime.end.p0(i64 4, ptr %27) #10
  br label %90

45:                                               ; preds = %40
  %46 = load ptr, ptr %11, align 8, !tbaa !4
  %47 = load i32, ptr %27, align 4, !tbaa !8
  %48 = load i32, ptr %16, align 4, !tbaa !8
  %49 = mul nsw i32 %47, %48
  %50 = sext i32 %49 to i64
  %51 = getelementptr inbounds float, ptr %46, i64 %50
  %52 = load i32, ptr %21, align 4, !tbaa !8
  %53 = sext i32 %52 to i64
  %54 = getelementptr inbounds float, ptr %51, i64 %53
  %55 = call <16 x float> @load(ptr noundef %54)
  %56 = load ptr, ptr %12, align 8, !tbaa !4
  %57 = load i32, ptr %27, align 4, !tbaa !8
  %58 = sext i32 %57 to i64
  %59 = getelementptr inbounds float, ptr %56, i64 %58
  %60 = load float, ptr %59, align 4, !tbaa !28
  %61 = call <16 x float> @splat(float noundef %60)
  %62 = fmul <16 x float> %55, %61
  %63 = load i32, ptr %27, align 4, !tbaa !8
  %64 = sext i32 %63 to i64
  %65 = getelementptr inbounds [4 x <16 x float>], ptr %23, i64 0, i64 %64
  store <16 x float> %62, ptr %65, align 16, !tbaa !74
  %66 = load ptr, ptr %11, align 8, !tbaa !4
  %67 = load i32, ptr %27, align 4, !tbaa !8
  %68 = load i32, ptr %16, align 4, !tbaa !8
  %69 = mul nsw i32 %67, %68
  %70 = sext i32 %69 to i64
  %71 = getelementptr inbounds float, ptr %66, i64 %70
  %72 = load i32, ptr %21, align 4, !tbaa !8
  %73 = sext i32 %72 to i64
  %74 = getelementptr inbounds float, ptr %71, i64 %73
  %75 = getelementptr inbounds float, ptr %74, i64 16
  %76 = call <16 x float> @load(ptr noundef %75)
  %77 = load ptr, ptr %12, align 8, !tbaa !4
  %78 = load i32, ptr %27, align 4, !tbaa !8
  %79 = sext i32 %78 to i64
  %80 = getelementptr inbounds float, ptr %77, i64 %79
  %81 = load float, ptr %80, align 4, !tbaa !28
  %82 = call <16 x float> @splat(float noundef %81)
  %83 = fmul <16 x float> %76, %82
  %84 = load i32, ptr %27, align 4, !tbaa !8
  %85 = sext i32 %84 to i64
  %86 = getelementptr inbounds [4 x <16 x float>], ptr %24, i64 0, i64 %85
  store <16 x float> %83, ptr %86, align 16, !tbaa !74
  br label %87

87:                                               ; preds = %45
  %88 = load i32, ptr %27, align 4, !tbaa !8
  %89 = add nsw i32 %88, 1
  store i32 %89, ptr %27, align 4, !tbaa !8
  br label %40, !llvm.loop !152

90:                                               ; preds = %44
  call void @llvm.lifetime.start.p0(i64 8, ptr %28) #10
  %91 = load i32, ptr %16, align 4, !tbaa !8
  %92 = sdiv i32 %91, 32
  %93 = sext i32 %92 to i64
  store i64 %93, ptr %28, align 8, !tbaa !24
  call void @llvm.lifetime.start.p0(i64 8, ptr %29) #10
  %94 = load i32, ptr %21, align 4, !tbaa !8
  %95 = sdiv i32 %94, 32
  %96 = sext i32 %95 to i64
  store i64 %96, ptr %29, align 8, !tbaa !24
  call void @llvm.lifetime.start.p0(i64 4, ptr %30) #10
  %97 = load i32, ptr %18, align 4, !tbaa !8
  store i32 %97, ptr %30, align 4, !tbaa !8
  br label %98

98:                                               ; preds = %165, %90
  %99 = load i32, ptr %30, align 4, !tbaa !8
  %100 = load i32, ptr %19, align 4, !tbaa !8
  %101 = icmp sle i32 %99, %100
  br i1 %101, label %103, label %102

102:                                              ; preds = %98
  store i32 8, ptr %22, align 4
  call void @llvm.lifetime.end.p0(i64 4, ptr %30) #10
  br label %168

103:                                              ; preds = %98
  %104 = load ptr, ptr %14, align 8, !tbaa !4
  %105 = load i32, ptr %30, align 4, !tbaa !8
  %106 = sext i32 %105 to i64
  %107 = load i64, ptr %28, align 8, !tbaa !24
  %108 = mul nsw i64 %106, %107
  %109 = load i64, ptr %29, align 8, !tbaa !24
  %110 = add nsw i64 %108, %109
  %111 = load i32, ptr %17, align 4, !tbaa !8
  call void @load_panel_row(ptr noundef %104, i64 noundef %110, i32 noundef %111, ptr noundef %25, ptr noundef %26)
  %112 = load ptr, ptr %15, align 8, !tbaa !4
  %113 = load i32, ptr %30, align 4, !tbaa !8
  %114 = sext i32 %113 to i64
  %115 = load i64, ptr %28, align 8, !tbaa !24
  %116 = mul nsw i64 %114, %115
  %117 = load i64, ptr %29, align 8, !tbaa !24
  %118 = add nsw i64 %116, %117
  %119 = load i32, ptr %17, align 4, !tbaa !8
  %120 = icmp ne i32 %119, 0
  %121 = zext i1 %120 to i64
  %122 = select i1 %120, i32 64, i32 128
  %123 = sext i32 %122 to i64
  %124 = mul nsw i64 %118, %123
  %125 = getelementptr inbounds i8, ptr %112, i64 %124
  call void @llvm.prefetch.p0(ptr %125, i32 0, i32 3, i32 1)
  call void @llvm.lifetime.start.p0(i64 4, ptr %31) #10
  store i32 0, ptr %31, align 4, !tbaa !8
  br label %126

126:                                              ; preds = %161, %103
  %127 = load i32, ptr %31, align 4, !tbaa !8
  %128 = load i32, ptr %20, align 4, !tbaa !8
  %129 = icmp slt i32 %127, %128
  br i1 %129, label %131, label %130

130:                                              ; preds = %126
  store i32 11, ptr %22, align 4
  call void @llvm.lifetime.end.p0(i64 4, ptr %31) #10
  br label %164

131:                                              ; preds = %126
  call void @llvm.lifetime.start.p0(i64 64, ptr %32) #10
  %132 = load ptr, ptr %13, align 8, !tbaa !4
  %133 = load i32, ptr %31, align 4, !tbaa !8
  %134 = mul nsw i32 %133, 32
  %135 = load i32, ptr %30, align 4, !tbaa !8
  %136 = add nsw i32 %134, %135
  %137 = sext i32 %136 to i64
  %138 = getelementptr inbounds float, ptr %132, i64 %137
  %139 = load float, ptr %138, align 4, !tbaa !28
  %140 = call <16 x float> @splat(float noundef %139)
  store <16 x float> %140, ptr %32, align 4, !tbaa !74
  %141 = load <16 x float>, ptr %32, align 4, !tbaa !74
  %142 = load <16 x float>, ptr %25, align 4, !tbaa !74
  %143 = load i32, ptr %31, align 4, !tbaa !8
  %144 = sext i32 %143 to i64
  %145 = getelementptr inbounds [4 x <16 x float>], ptr %23, i64 0, i64 %144
  %146 = load <16 x float>, ptr %145, align 16, !tbaa !74
  %147 = call <16 x float> @fma16(<16 x float> noundef %141, <16 x float> noundef %142, <16 x float> noundef %146)
  %148 = load i32, ptr %31, align 4, !tbaa !8
  %149 = sext i32 %148 to i64
  %150 = getelementptr inbounds [4 x <16 x float>], ptr %23, i64 0, i64 %149
  store <16 x float> %147, ptr %150, align 16, !tbaa !74
  %151 = load <16 x float>, ptr %32, align 4, !tbaa !74
  %152 = load <16 x float>, ptr %26, align 4, !tbaa !74
  %153 = load i32, ptr %31, align 4, !tbaa !8
  %154 = sext i32 %153 to i64
  %155 = getelementptr inbounds [4 x <16 x float>], ptr %24, i64 0, i64 %154
  %156 = load <16 x float>, ptr %155, align 16, !tbaa !74
  %157 = call <16 x float> @fma16(<16 x float> noundef %151, <16 x float> noundef %152, <16 x float> noundef %156)
  %158 = load i32, ptr %31, align 4, !tbaa !8
  %159 = sext i32 %158 to i64
  %160 = getelementptr inbounds [4 x <16 x float>], ptr %24, i64 0, i64 %159
  store <16 x float> %157, ptr %160, align 16, !tbaa !74
  call void @llvm.lifetime.end.p0(i64 64, ptr %32) #10
  br label %161

161:                                              ; preds = %131
  %162 = load i32, ptr %31, align 4, !tbaa !8
  %163 = add nsw i32 %162, 1
  store i32 %163, ptr %31, align 4, !tbaa !8
  br label %126, !llvm.loop !153

164:                                              ; preds = %130
  br label %165

165:                                              ; preds = %164
  %166 = load i32, ptr %30, align 4, !tbaa !8
  %167 = add nsw i32 %166, 1
  store i32 %167, ptr %30, align 4, !tbaa !8
  br label %98, !llvm.loop !154

168:                                              ; preds = %102
  call void @llvm.lifetime.start.p0(i64 4, ptr %33) #10
  store i32 0, ptr %33, align 4, !tbaa !8
  br label %169

169:                                              ; preds = %202, %168
  %170 = load i32, ptr %33, align 4, !tbaa !8
  %171 = load i32, ptr %20, align 4, !tbaa !8
  %172 = icmp slt i32 %170, %171
  br i1 %172, label %174, label %173

173:                                              ; preds = %169
  store i32 14, ptr %22, align 4
  call void @llvm.lifetime.end.p0(i64 4, ptr %33) #10
  br label %205

174:                                              ; preds = %169
  %175 = load ptr, ptr %11, align 8, !tbaa !4
  %176 = load i32, ptr %33, align 4, !tbaa !8
  %177 = load i32, ptr %16, align 4, !tbaa !8
  %178 = mul nsw i32 %176, %177
  %179 = sext i32 %178 to i64
  %180 = getelementptr inbounds float, ptr %175, i64 %179
  %181 = load i32, ptr %21, align 4, !tbaa !8
  %182 = sext i32 %181 to i64
  %183 = getelementptr inbounds float, ptr %180, i64 %182
  %184 = load i32, ptr %33, align 4, !tbaa !8
  %185 = sext i32 %184 to i64
  %186 = getelementptr inbounds [4 x <16 x float>], ptr %23, i64 0, i64 %185
  %187 = load <16 x float>, ptr %186, align 16, !tbaa !74
  call void @store(ptr noundef %183, <16 x float> noundef %187)
  %188 = load ptr, ptr %11, align 8, !tbaa !4
  %189 = load i32, ptr %33, align 4, !tbaa !8
  %190 = load i32, ptr %16, align 4, !tbaa !8
  %191 = mul nsw i32 %189, %190
  %192 = sext i32 %191 to i64
  %193 = getelementptr inbounds float, ptr %188, i64 %192
  %194 = load i32, ptr %21, align 4, !tbaa !8
  %195 = sext i32 %194 to i64
  %196 = getelementptr inbounds float, ptr %193, i64 %195
  %197 = getelementptr inbounds float, ptr %196, i64 16
  %198 = load i32, ptr %33, align 4, !tbaa !8
  %199 = sext i32 %198 to i64
  %200 = getelementptr inbounds [4 x <16 x float>], ptr %24, i64 0, i64 %199
  %201 = load <16 x float>, ptr %200, align 16, !tbaa !74
  call void @store(ptr noundef %197, <16 x float> noundef %201)
  br label %202

202:                                              ; preds = %174
  %203 = load i32, ptr %33, align 4, !tbaa !8
  %204 = add nsw i32 %203, 1
  store i32 %204, ptr %33, align 4, !tbaa !8
  br label %169, !llvm.loop !155

205:                                              ; preds = %173
  call void @llvm.lifetime.end.p0(i64 8, ptr %29) #10
  call void @llvm.lifetime.end.p0(i64 8, ptr %28) #10
  call void @llvm.lifetime.end.p0(i64 64, ptr %26) #10
  call void @llvm.lifetime.end.p0(i64 64, ptr %25) #10
  call void @llvm.lifetime.end.p0(i64 256, ptr %24) #10
  call void @llvm.lifetime.end.p0(i64 256, ptr %23) #10
  br label %206

206:                                              ; preds = %205
  %207 = load i32, ptr %21, align 4, !tbaa !8
  %208 = add nsw i32 %207, 32
  store i32 %208, ptr %21, align 4, !tbaa !8
  br label %34, !llvm.loop !156

209:                                              ; preds = %38
  ret void
}

; Function Attrs: alwaysinline nounwind
define internal i32 @key_column(ptr noundef %0, i32 noundef %1) #3 {
  %3 = alloca i32, align 4
  %4 = alloca ptr, align 8
  %5 = alloca i32, align 4
  store ptr %0, ptr %4, align 8, !tbaa !4
  store i32 %1, ptr %5, align 4, !tbaa !8
  %6 = load ptr, ptr %4, align 8, !tbaa !4
  %7 = getelementptr inbounds %struct.Model, ptr %6, i32 0, i32 8
  %8 = load i32, ptr %7, align 8, !tbaa !93
  %9 = icmp ne i32 %8, 0
  br i1 %9, label %12, label %10

10:                                               ; preds = %2
  %11 = load i32, ptr %5, align 4, !tbaa !8
  store i32 %11, ptr %3, align 4
  br label %25

12:                                               ; preds = %2
  %13 = load i32, ptr %5, align 4, !tbaa !8
  %14 = icmp slt i32 %13, 16
  br i1 %14, label %15, label %18

15:                                               ; preds = %12
  %16 = load i32, ptr %5, align 4, !tbaa !8
  %17 = mul nsw i32 2, %16
  br label %23

18:                                               ; preds = %12
  %19 = load i32, ptr %5, align 4, !tbaa !8
  %20 = sub nsw i32 %19, 16
  %21 = mul nsw i32 2, %20
  %22 = add nsw i32 %21, 1
  br label %23

23:                                               ; preds = %18, %15
  %24 = phi i32 [ %17, %15 ], [ %22, %18 ]
  store i32 %24, ptr %3, align 4
  br label %25

25:                                               ; preds = %23, %10
  %26 = load i32, ptr %3, align 4
  ret i32 %26
}

attributes #0 = { nounwind "no-trapping-math"="true" "min-legal-vector-width"="512" "prefer-vector-width"="512" }
attributes #1 = { nocallback nofree nosync nounwind willreturn memory(argmem: readwrite) }
attributes #2 = { nounwind "no-trapping-math"="true" "min-legal-vector-width"="512" "prefer-vector-width"="512" }
attributes #3 = { alwaysinline nounwind "no-trapping-math"="true" "min-legal-vector-width"="512" "prefer-vector-width"="512" }
attributes #4 = { alwaysinline nounwind "no-trapping-math"="true" "min-legal-vector-width"="512" "prefer-vector-width"="512" }
attributes #5 = { "no-trapping-math"="true" "min-legal-vector-width"="512" "prefer-vector-width"="512" }
attributes #6 = { nocallback nofree nounwind willreturn memory(argmem: readwrite) }
attributes #7 = { nocallback nofree nosync nounwind willreturn memory(argmem: readwrite, inaccessiblemem: readwrite) }
attributes #8 = { nocallback nofree nosync nounwind speculatable willreturn memory(none) }
attributes #9 = { noinline nounwind "no-trapping-math"="true" "min-legal-vector-width"="512" "prefer-vector-width"="512" }
attributes #10 = { nounwind }

!llvm.module.flags = !{!0, !1, !2}

!0 = !{i32 1, !"wchar_size", i32 4}
!1 = !{i32 8, !"PIC Level", i32 2}
!2 = !{i32 7, !"PIE Level", i32 2}
!3 = !{!"Debian clang version 19.1.7 (3~deb12u1)"}
!4 = !{!5, !5, i64 0}
!5 = !{!"any pointer", !6, i64 0}
!6 = !{!"omnipotent char", !7, i64 0}
!7 = !{!"Simple C/C++ TBAA"}
!8 = !{!9, !9, i64 0}
!9 = !{!"int", !6, i64 0}
!10 = !{!11, !9, i64 0}
!11 = !{!"", !9, i64 0, !9, i64 4, !9, i64 8, !9, i64 12, !5, i64 16, !5, i64 24, !5, i64 32, !5, i64 40, !5, i64 48, !5, i64 56, !5, i64 64, !5, i64 72, !5, i64 80, !5, i64 88, !5, i64 96, !5, i64 104, !5, i64 112, !5, i64 120, !5, i64 128, !5, i64 136, !5, i64 144, !9, i64 152, !5, i64 160}
!12 = !{!11, !5, i64 16}
!13 = !{!11, !5, i64 64}
!14 = !{!15, !9, i64 4}
!15 = !{!"", !9, i64 0, !9, i64 4, !9, i64 8, !9, i64 12, !9, i64 16, !9, i64 20, !9, i64 24, !9, i64 28, !9, i64 32, !9, i64 36, !9, i64 40, !9, i64 44, !16, i64 48, !16, i64 52, !5, i64 56, !5, i64 64, !5, i64 72, !5, i64 80, !5, i64 88, !5, i64 96}
!16 = !{!"float", !6, i64 0}
!17 = !{!11, !9, i64 12}
!18 = distinct !{!18, !19}
!19 = !{!"llvm.loop.mustprogress"}
!20 = !{!15, !9, i64 0}
!21 = !{!15, !5, i64 96}
!22 = distinct !{!22, !19}
!23 = !{!11, !9, i64 4}
!24 = !{!25, !25, i64 0}
!25 = !{!"long", !6, i64 0}
!26 = !{!15, !9, i64 28}
!27 = !{!15, !5, i64 56}
!28 = !{!16, !16, i64 0}
!29 = distinct !{!29, !19}
!30 = !{!31, !31, i64 0}
!31 = !{!"short", !6, i64 0}
!32 = distinct !{!32, !19}
!33 = !{!11, !5, i64 120}
!34 = distinct !{!34, !19}
!35 = !{!11, !9, i64 152}
!36 = !{!11, !5, i64 136}
!37 = !{!11, !5, i64 144}
!38 = distinct !{!38, !19}
!39 = distinct !{!39, !19}
!40 = !{!41, !5, i64 0}
!41 = !{!"", !5, i64 0, !5, i64 8, !5, i64 16, !5, i64 24, !5, i64 32, !5, i64 40, !5, i64 48, !5, i64 56, !5, i64 64, !5, i64 72, !5, i64 80}
!42 = !{!41, !5, i64 8}
!43 = !{!11, !5, i64 72}
!44 = !{!45, !5, i64 0}
!45 = !{!"", !5, i64 0, !5, i64 8, !5, i64 16, !5, i64 24, !25, i64 32, !25, i64 40, !9, i64 48, !9, i64 52, !9, i64 56, !9, i64 60}
!46 = !{!11, !5, i64 96}
!47 = !{!45, !5, i64 8}
!48 = !{!41, !5, i64 56}
!49 = !{!45, !5, i64 16}
!50 = !{!45, !5, i64 24}
!51 = !{!45, !25, i64 32}
!52 = !{!15, !9, i64 20}
!53 = !{!45, !25, i64 40}
!54 = !{!45, !9, i64 48}
!55 = !{!45, !9, i64 52}
!56 = !{!45, !9, i64 56}
!57 = !{!45, !9, i64 60}
!58 = !{!41, !5, i64 64}
!59 = !{!11, !5, i64 56}
!60 = !{!15, !5, i64 64}
!61 = !{!15, !16, i64 48}
!62 = distinct !{!62, !19}
!63 = !{!15, !9, i64 24}
!64 = !{!11, !5, i64 104}
!65 = !{!15, !5, i64 72}
!66 = !{!67, !5, i64 0}
!67 = !{!"", !5, i64 0, !5, i64 8, !9, i64 16, !9, i64 20}
!68 = !{!67, !9, i64 16}
!69 = !{!67, !5, i64 8}
!70 = !{!67, !9, i64 20}
!71 = distinct !{!71, !19}
!72 = distinct !{!72, !19}
!73 = distinct !{!73, !19}
!74 = !{!6, !6, i64 0}
!75 = distinct !{!75, !19}
!76 = distinct !{!76, !19}
!77 = !{!15, !9, i64 8}
!78 = !{!15, !9, i64 16}
!79 = !{!11, !5, i64 80}
!80 = !{!41, !5, i64 40}
!81 = !{!41, !5, i64 32}
!82 = !{!15, !9, i64 44}
!83 = distinct !{!83, !19}
!84 = !{!15, !9, i64 12}
!85 = distinct !{!85, !19}
!86 = !{!11, !5, i64 88}
!87 = !{!41, !5, i64 48}
!88 = !{!41, !5, i64 72}
!89 = !{!41, !5, i64 80}
!90 = distinct !{!90, !19}
!91 = distinct !{!91, !19}
!92 = distinct !{!92, !19}
!93 = !{!15, !9, i64 32}
!94 = !{!95, !25, i64 0}
!95 = !{!"", !25, i64 0, !25, i64 8}
!96 = distinct !{!96, !19}
!97 = !{!95, !25, i64 8}
!98 = distinct !{!98, !19}
!99 = !{!15, !9, i64 36}
!100 = distinct !{!100, !19}
!101 = distinct !{!101, !19}
!102 = distinct !{!102, !19}
!103 = !{!11, !5, i64 112}
!104 = distinct !{!104, !19}
!105 = !{!106, !5, i64 0}
!106 = !{!"", !5, i64 0, !25, i64 8}
!107 = !{!106, !25, i64 8}
!108 = distinct !{!108, !19, !109}
!109 = !{!"llvm.loop.unroll.full"}
!110 = distinct !{!110, !19, !109}
!111 = distinct !{!111, !19}
!112 = distinct !{!112, !19, !109}
!113 = !{!15, !5, i64 80}
!114 = !{!11, !5, i64 128}
!115 = !{!15, !5, i64 88}
!116 = !{!41, !5, i64 16}
!117 = !{!41, !5, i64 24}
!118 = distinct !{!118, !19}
!119 = !{!11, !5, i64 32}
!120 = distinct !{!120, !19}
!121 = !{!11, !5, i64 160}
!122 = distinct !{!122, !19}
!123 = distinct !{!123, !19}
!124 = distinct !{!124, !19}
!125 = distinct !{!125, !19}
!126 = distinct !{!126, !19}
!127 = distinct !{!127, !19}
!128 = !{!129, !5, i64 0}
!129 = !{!"", !5, i64 0, !9, i64 8, !9, i64 12, !5, i64 16, !5, i64 24}
!130 = !{!129, !9, i64 8}
!131 = !{!11, !5, i64 24}
!132 = !{!129, !9, i64 12}
!133 = !{!129, !5, i64 16}
!134 = !{!129, !5, i64 24}
!135 = !{!15, !9, i64 40}
!136 = !{!11, !5, i64 48}
!137 = !{!11, !5, i64 40}
!138 = !{!11, !9, i64 8}
!139 = distinct !{!139, !19}
!140 = distinct !{!140, !19, !109}
!141 = distinct !{!141, !19}
!142 = !{!15, !16, i64 52}
!143 = distinct !{!143, !19, !109}
!144 = distinct !{!144, !19}
!145 = distinct !{!145, !19}
!146 = distinct !{!146, !19, !109}
!147 = distinct !{!147, !19}
!148 = distinct !{!148, !19, !109}
!149 = distinct !{!149, !19, !109}
!150 = distinct !{!150, !19}
!151 = distinct !{!151, !19, !109}
!152 = distinct !{!152, !19, !109}
!153 = distinct !{!153, !19, !109}
!154 = distinct !{!154, !19}
!155 = distinct !{!155, !19, !109}
!156 = distinct !{!156, !19}
